-- beat: a node says that it lives, and how it is. Those not heard of for a day are forgotten.
-- KEYS  1 lowkiq:nodes
-- ARGV  1 node, 2 '1' to be forgotten at once
-- returns now
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
return stamp(now)
