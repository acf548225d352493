-- note_failures: add what a node has counted of failures to a queue's ledger. Repeating a flush changes nothing.
-- KEYS  1 prefix of the ledger, e.g. lowkiq:{failures}:orders:
-- ARGV  1 node, 2 number of its flush, 3 most groups, 4 seconds for which one is kept that is not seen again, 5 seconds in
--       which a flush may be repeated, then for each group: its text, failures
-- returns 1, or 0 if this flush was noted before
--@ shard now stamp
local P = KEYS[1]
local seen, first, counts, flush = P .. 'seen', P .. 'first', P .. 'counts', P .. 'flush:' .. ARGV[1]
local most, kept = tonumber(ARGV[3]), tonumber(ARGV[4])
local now = now_us()

-- What somebody else has put there is no ledger: it makes room for one.
for key, kind in pairs({[seen] = 'zset', [first] = 'hash', [counts] = 'hash', [flush] = 'string'}) do
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then redis.call('UNLINK', key) end
end

if redis.call('GET', flush) == ARGV[2] then return 0 end
redis.call('SET', flush, ARGV[2], 'EX', ARGV[5])

-- A count that is none begins again.
local function add(group, failures)
  local reply = redis.pcall('HINCRBY', counts, group, failures)
  if type(reply) == 'table' and reply.err then redis.call('HSET', counts, group, failures) end
end

for i = 6, #ARGV, 2 do
  if redis.call('HEXISTS', first, ARGV[i]) == 0 then redis.call('HSET', first, ARGV[i], stamp(now)) end
  redis.call('ZADD', seen, stamp(now), ARGV[i])
  add(ARGV[i], ARGV[i + 1])
end

-- Those that nobody has seen for longest go. A time to come is of a clock that was set back since.
local function drop(groups)
  for _, group in ipairs(groups) do
    redis.call('ZREM', seen, group)
    redis.call('HDEL', first, group)
    redis.call('HDEL', counts, group)
  end
end

local AT_ONCE = 500
for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', seen, '(' .. stamp(now), '+inf', 'LIMIT', 0, AT_ONCE)) do
  redis.call('ZADD', seen, stamp(now), ahead)
end
drop(redis.call('ZRANGEBYSCORE', seen, '-inf', stamp(now - kept * 1000000), 'LIMIT', 0, AT_ONCE))
local over = redis.call('ZCARD', seen) - most
if over > 0 then drop(redis.call('ZRANGE', seen, 0, math.min(over, AT_ONCE) - 1)) end
for _, key in ipairs({seen, first, counts}) do redis.call('EXPIRE', key, kept) end
return 1
