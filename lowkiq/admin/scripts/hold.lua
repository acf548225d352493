--! allow-oom
--! once
-- hold: keep ids from being claimed until they are let go (holding.lua); a run of one goes on. What is queued of them is
-- parked by the claim that meets it. Repeating it changes who and why, and no more.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 who and why, as JSON, then ids, be they queued or not
-- returns how many were not held before   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard now stamp
--@ moving whole
--@ notes note
local P = KEYS[1]
local refusal, layout = check_whole(P, ARGV[1])
if refusal then return refusal end

local new = 0
-- It comes first, since it frees: so ids are held when memory is full.
redis.call('HDEL', P .. 'owner', 'open')
if not layout then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end
local since = stamp(now_us())
for i = 3, #ARGV do
  local id = ARGV[i]
  redis.call('ZADD', P .. 'held', 'NX', since, id)
  if redis.call('HSET', P .. 'holds', id, ARGV[2]) == 1 then
    new = new + 1
    note(P, 'held', id, '')
  end
end
return new
