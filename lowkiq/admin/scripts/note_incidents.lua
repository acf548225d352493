-- note_incidents: write incidents down, each once, however often it is told; drop those that are old, or too many.
-- KEYS  1 lowkiq:{incidents}, 2 lowkiq:{incidents}:said, 3 lowkiq:{incidents}:ends
-- ARGV  1 how many are kept, 2 for how many seconds; then for each: its key, when it was ('' for now), what is said of it
-- returns how many are new
--@ shard now stamp
local AT_ONCE = 1000 -- of those that are dropped
local KINDS = {'zset', 'hash', 'hash'}
local now, new = now_us(), 0
local oldest = now - ARGV[2] * 1000000

-- Whatever else somebody has written there would keep every incident from being noted.
for i, kind in ipairs(KINDS) do
  local is = redis.call('TYPE', KEYS[i]).ok
  if is ~= kind and is ~= 'none' then redis.call('UNLINK', KEYS[i]) end
end

for i = 3, #ARGV, 3 do
  local key, at = ARGV[i], math.min((tonumber(ARGV[i + 1]) or math.huge) * 1000000, now)
  if at >= oldest and not redis.call('ZSCORE', KEYS[1], key) then
    redis.call('HSET', KEYS[2], key, ARGV[i + 2])
    redis.call('ZADD', KEYS[1], stamp(at), key)
    new = new + 1
  end
end

local function drop(found)
  if #found == 0 then return end
  redis.call('HDEL', KEYS[2], unpack(found))
  redis.call('HDEL', KEYS[3], unpack(found))
  redis.call('ZREM', KEYS[1], unpack(found))
end

drop(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. stamp(oldest), 'LIMIT', 0, AT_ONCE))
local more = redis.call('ZCARD', KEYS[1]) - ARGV[1]
if more > 0 then drop(redis.call('ZRANGE', KEYS[1], 0, math.min(more, AT_ONCE) - 1)) end
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[2]) end
return new
