-- register: the number of shards of a queue, set by whoever comes first.
-- KEYS  1 lowkiq:queues
-- ARGV  1 queue, 2 shards_count
-- returns the shards_count in force
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
