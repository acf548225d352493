-- lengths: how much there is in one of the keys of each shard.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 ZCARD or LLEN, 2 the key after the prefix
-- returns a number for each key
--@ shard count
local reply = {}
for i = 1, SHARDS do reply[i] = redis.call(ARGV[1], KEYS[i] .. ARGV[2]) end
return reply
