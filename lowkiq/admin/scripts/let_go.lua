--! allow-oom
--! once
-- let_go: have ids be claimed again that a person holds (holding.lua): what is queued of them is due at its own time, or now. One
-- that waits for others (waiting.lua) goes on waiting. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were held   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock
--@ moving whole
--@ holding release
local P = KEYS[1]
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end

local ended, free = 0, {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local is_held = redis.call('HDEL', P .. 'holds', id) == 1
  if redis.call('HEXISTS', P .. 'waits', id) == 0 then
    if redis.call('ZREM', P .. 'held', id) == 1 then free[#free + 1] = id end
  elseif is_held then
    note(P, 'let_go', id, '', 'it waits still')
    ended = ended + 1
  end
end
release_held(P, shard_now(P, last_score), free)
return ended + #free
