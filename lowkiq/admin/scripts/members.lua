-- members: a node says that shards may be dealt to it, and what it has, or that none may. Who is not heard of goes.
-- KEYS  1 lowkiq:{members}, 2 lowkiq:{members}:said, 3 lowkiq:{members}:version, 4 lowkiq:{members}:placements
-- ARGV  1 node, 2 what it says ('' = none may), 3 seconds after which a node is gone, 4 the version that it knows
-- returns {version, 1 if others came or went by this, else 0}; and if that version is another, {each node, and what it
--       says}, {each shard that has a placement, and which (placements.lua)}
--@ shard now stamp
local KEPT = 86400 -- seconds after which all is forgotten when no node tells any more
local now = now_us()
local has_changed, is_new, went = false, false, 0
if ARGV[2] == '' then
  went = redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  is_new = redis.call('ZADD', KEYS[1], stamp(now), ARGV[1]) == 1
  has_changed = redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2]
  if has_changed then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
end
-- A time to come is of a clock that was set back since: of a node that lives the next one follows soon.
local silent = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', stamp(now - ARGV[3] * 1000000), 'LIMIT', 0, 1000)
local ahead = redis.call('ZRANGEBYSCORE', KEYS[1], stamp(now + 1000000), '+inf', 'LIMIT', 0, 1000)
for _, node in ipairs(ahead) do redis.call('ZADD', KEYS[1], stamp(now), node) end
for _, node in ipairs(silent) do
  redis.call('ZREM', KEYS[1], node)
  redis.call('HDEL', KEYS[2], node)
end
local moved = is_new or went > 0 or #silent > 0
-- By the clock, so that no version comes twice when Redis has lost its last writes.
local version = redis.call('GET', KEYS[3])
if moved or has_changed or not version then
  version = string.format('%.0f', math.max(now, (tonumber(version) or 0) + 1))
  redis.call('SET', KEYS[3], version)
end
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, KEPT) end
local reply = {version, moved and 1 or 0}
if version ~= ARGV[4] then
  reply[3], reply[4] = redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[4])
end
return reply
