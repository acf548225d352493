-- beat: a node says that it lives, and how it is. Those not heard of for a day are forgotten, and of others that are
-- gone all but the last.
-- KEYS  1 lowkiq:nodes
-- ARGV  1 node, 2 '1' to be forgotten at once, 3 seconds after which a node is gone, 4 how many of these are kept
-- returns now, then nodes that are too many, and are forgotten: what they told is still to be deleted
--@ shard now stamp
local now = now_us()
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], stamp(now), ARGV[1])
end
-- A beat of a time to come is of a clock that was set back since: of a node that lives the next one follows soon.
for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. stamp(now), '+inf')) do
  redis.call('ZADD', KEYS[1], stamp(now), ahead)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', stamp(now - 86400 * 1000000))
local gone = stamp(now - tonumber(ARGV[3]) * 1000000)
local surplus = redis.call('ZCOUNT', KEYS[1], '-inf', gone) - tonumber(ARGV[4])
if surplus <= 0 then
  return {stamp(now)}
end
local names = redis.call('ZRANGE', KEYS[1], 0, math.min(surplus, 100) - 1)
redis.call('ZREM', KEYS[1], unpack(names))
return {stamp(now), unpack(names)}
