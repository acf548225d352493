--! allow-oom
-- let_go: have held ids be claimed again (holding.lua), those that wait for others (waiting.lua) among them: what is queued of
-- them is due at its own time, or now. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were held   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock
--@ moving whole
--@ holding release
--@ waiting forget
local P = KEYS[1]
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end

local gone = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  if redis.call('ZREM', P .. 'held', id) == 1 then
    redis.call('HDEL', P .. 'holds', id)
    forget_waits(P, id)
    gone[#gone + 1] = id
  end
end
release_held(P, shard_now(P, last_score), gone)
return #gone
