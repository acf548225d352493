-- register: the layout of a queue, set by whoever comes first.
-- KEYS  1 lowkiq:queues
-- ARGV  1 queue, 2 layout
-- returns the layout in force
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return known end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ARGV[2]
