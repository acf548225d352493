-- version: which version a group of nodes runs now, or with which settings a queue.
-- KEYS  1 lowkiq:version:GROUP or lowkiq:settings:QUEUE
-- ARGV  1 the version, or the settings, 2 bytes of the last ones that are read
-- returns those until now, '' if there were none
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'string' and is ~= 'none' then redis.call('UNLINK', KEYS[1]) end
local last = redis.call('GETRANGE', KEYS[1], 0, ARGV[2] - 1)
if last ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
redis.call('EXPIRE', KEYS[1], 365 * 86400) -- of queues that are gone, nobody asks again
return last
