--! allow-oom
--! once
-- resume: have a paused shard be claimed from again, and wake its owner. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout
-- returns 1, or 0 if it was not paused   errors: LAYOUT, NEWER
--@ shard clock layout
--@ bell ring
local P = KEYS[1]
local refusal, _, last_score = check_layout(P, ARGV[1], true)
if refusal then return refusal end

if redis.call('UNLINK', P .. 'paused') == 0 then return 0 end
redis.call('HDEL', P .. 'owner', 'rests')
if redis.call('HGET', P .. 'owner', 'node') then
  -- What it knew is of before the pause. At inf are those that wait for their own run.
  redis.call('HSET', P .. 'owner', 'waiting', 'inf')
  local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
  if oldest and oldest ~= 'inf' then ring(P, oldest * 1000000, shard_now(P, last_score)) end
end
return 1
