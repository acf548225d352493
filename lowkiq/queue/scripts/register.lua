-- register: the layout of a queue, set by whoever comes first.
-- KEYS  1 lowkiq:queues
-- ARGV  1 queue, 2 layout
-- returns the layout in force
-- It writes only what is new: when memory is full, a node must still be able to boot and work the queue off.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return known or ARGV[2]
