-- placements: some shards have a node of their own, whatever their numbers say (elastic.py), others have one no more.
-- KEYS  1 lowkiq:{members}:version, 2 lowkiq:{members}:placements
-- ARGV  1 how many shards have one no more, then these; then each shard that has one, and which
-- returns 1
--@ shard now
local first = ARGV[1] + 2
for i = 2, first - 1 do redis.call('HDEL', KEYS[2], ARGV[i]) end
for i = first, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('SET', KEYS[1], string.format('%.0f', math.max(now_us(), (tonumber(redis.call('GET', KEYS[1])) or 0) + 1)))
return 1
