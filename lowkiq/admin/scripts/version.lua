-- version: another version runs a group of nodes now, a queue has other settings, or nodes other shards; what another
-- node has told since stays.
-- KEYS  1 lowkiq:version:GROUP, lowkiq:settings:QUEUE or lowkiq:parts
-- ARGV  1 what stood there ('' for nothing), as far as it was read, 2 how many bytes of it are, 3 what is to stand there
-- returns what stands there now
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'string' and is ~= 'none' then redis.call('UNLINK', KEYS[1]) end
if redis.call('GETRANGE', KEYS[1], 0, ARGV[2] - 1) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[3]) end
redis.call('EXPIRE', KEYS[1], 365 * 86400) -- of queues that are gone, nobody asks again
return redis.call('GET', KEYS[1])
