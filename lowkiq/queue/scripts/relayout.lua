-- relayout: give a queue another layout, if it still has the one that the caller knows. Repeating it changes nothing.
-- KEYS  1 lowkiq:queues
-- ARGV  1 queue, 2 its layout as it is known, 3 the one that takes its place
-- returns the layout in force, '' for none
local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known ~= ARGV[2] then return known end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
