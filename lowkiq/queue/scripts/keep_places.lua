--! allow-oom
-- keep_places: keep places (places.lua) for their time from now on. One whose time is over is kept too, if it is free.
-- Repeating it changes nothing.
-- KEYS  1 prefix of the queue's places
-- ARGV  1 max_running, 2 seconds, then the places
-- returns those that are lost
--@ shard now stamp

local P, now = KEYS[1], now_us()
local over = stamp(now + ARGV[2] * 1000000)
local missing, lost = {}, {}
-- It comes first, since it frees. Those of the caller are among the missing then.
redis.call('ZREMRANGEBYSCORE', P .. 'taken', '-inf', stamp(now))
for i = 3, #ARGV do
  if redis.call('ZSCORE', P .. 'taken', ARGV[i]) then
    redis.call('ZADD', P .. 'taken', 'XX', over, ARGV[i])
  else
    missing[#missing + 1] = ARGV[i]
  end
end
local free = ARGV[1] - redis.call('ZCARD', P .. 'taken')
for i, place in ipairs(missing) do
  if i <= free then
    redis.call('ZADD', P .. 'taken', over, place)
  else
    lost[#lost + 1] = place
  end
end
redis.call('EXPIRE', P .. 'taken', 86400)
return lost
