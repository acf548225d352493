-- heads: where each shard's index goes on after a cursor.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 index, 2 ZRANGEBYSCORE or ZREVRANGEBYSCORE, then for each key its first bound, last bound and offset
-- returns for each key the score of the first id, or ''
--@ shard count
local reply = {}
for i = 1, SHARDS do
  local found = redis.call(ARGV[2], KEYS[i] .. ARGV[1], ARGV[i * 3], ARGV[i * 3 + 1], 'WITHSCORES', 'LIMIT', ARGV[i * 3 + 2], 1)
  reply[i] = found[2] or ''
end
return reply
