-- watch: have what happens in shards published (notes.lua), until this has not been repeated for a while.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 seconds until it lapses, 2 the database's part in the names of channels, mostly empty
-- returns nothing
--@ shard count
for i = 1, SHARDS do
  redis.call('SET', KEYS[i] .. 'watch', ARGV[2], 'EX', ARGV[1])
  redis.call('HSET', KEYS[i] .. 'meta', 'watched', '1')
end
