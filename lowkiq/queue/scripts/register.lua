-- register: the layout of a queue, set by whoever comes first.
-- KEYS  1 lowkiq:queues
-- ARGV  1 queue, 2 layout, 3 an older one that it takes the place of ('' for none)
-- returns the layout in force
-- It writes only what is new: when memory is full, a node must still be able to boot and work the queue off.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and (ARGV[3] == '' or known ~= ARGV[3]) then return known end
if known then redis.call('HDEL', KEYS[1], '') end -- Redis lets a script go on whose first write frees
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ARGV[2]
