-- keep_dump: keep what the threads of a node did; of too many, the oldest are dropped. Repeating it changes nothing.
-- KEYS  1 lowkiq:{dumps}
-- ARGV  1 the dump's id, 2 what is said of it, as it begins in JSON, 3 its text, 4 how many are kept, 5 for how many seconds
-- returns how many there are
--@ shard now stamp
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'zset' and is ~= 'none' then redis.call('UNLINK', KEYS[1]) end
local now = now_us()
local function drop(ids)
  for _, id in ipairs(ids) do
    redis.call('UNLINK', KEYS[1] .. ':' .. id, KEYS[1] .. ':' .. id .. ':text')
    redis.call('ZREM', KEYS[1], id)
  end
end

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local key = KEYS[1] .. ':' .. ARGV[1]
  redis.call('SET', key, ARGV[2] .. ',"at":' .. stamp(now) .. '}', 'EX', ARGV[5])
  redis.call('SET', key .. ':text', ARGV[3], 'EX', ARGV[5])
  redis.call('ZADD', KEYS[1], stamp(now), ARGV[1])
end
drop(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', stamp(now - ARGV[5] * 1000000), 'LIMIT', 0, 1000))
local more = redis.call('ZCARD', KEYS[1]) - ARGV[4]
if more > 0 then drop(redis.call('ZRANGE', KEYS[1], 0, math.min(more, 1000) - 1)) end
redis.call('EXPIRE', KEYS[1], ARGV[5])
return redis.call('ZCARD', KEYS[1])
