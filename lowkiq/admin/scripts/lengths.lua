-- lengths: how much there is in one of the keys of each shard.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 ZCARD, HLEN or LLEN, 2 the key after the prefix
-- returns a number for each key; 0 for one of another type
--@ shard each
local reply = {}
each(function(first, last)
  for i = first, last do
    reply[i] = 0
    reply[i] = redis.call(ARGV[1], KEYS[i] .. ARGV[2])
  end
  return true
end)
return reply
