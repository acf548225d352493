--! allow-oom
--! once
-- stop_waiting: have jobs that wait for others (waiting.lua) run without those, unless a person holds them as well. Repeating it
-- changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many have waited   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock
--@ moving whole
--@ holding release
--@ waiting forget
local P = KEYS[1]
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end

local ended, free = 0, {}
for i = 2, #ARGV do
  local id = ARGV[i]
  if redis.call('HEXISTS', P .. 'waits', id) == 1 then
    ended = ended + 1
    if forget_waits(P, id) then free[#free + 1] = id else note(P, 'let_go', id, '', 'it is held still') end
  end
end
release_held(P, shard_now(P, last_score), free)
return ended
