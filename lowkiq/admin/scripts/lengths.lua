-- lengths: how much there is in one of the keys of each shard.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 ZCARD or LLEN, 2 the key after the prefix
-- returns a number for each key; 0 for one of another type
--@ shard count attempt
local reply = {}
for i = 1, SHARDS do reply[i] = attempt(redis.call, ARGV[1], KEYS[i] .. ARGV[2]) or 0 end
return reply
