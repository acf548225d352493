-- heads: where each shard's index goes on after a cursor.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 index, 2 ZRANGEBYSCORE or ZREVRANGEBYSCORE, then for each key its first bound, last bound and offset
-- returns for each key the score of the first id, or ''
--@ shard count attempt
local reply = {}
for i = 1, SHARDS do
  local key, first, last, skip = KEYS[i] .. ARGV[1], ARGV[i * 3], ARGV[i * 3 + 1], ARGV[i * 3 + 2]
  local found = attempt(redis.call, ARGV[2], key, first, last, 'WITHSCORES', 'LIMIT', skip, 1)
  reply[i] = found and found[2] or ''
end
return reply
