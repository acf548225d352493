-- lengths: how much there is in one of the keys of each shard.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 ZCARD, ZCOUNT, HLEN or LLEN, 2 the key after the prefix ('claim' is all claims in hand), then of ZCOUNT its bounds
-- returns a number for each key; 0 for one of another type
--@ shard each
local reply = {}
each(function(first, last)
  for i = first, last do
    reply[i] = 0
    local length = redis.call(ARGV[1], KEYS[i] .. ARGV[2], unpack(ARGV, 3))
    if ARGV[2] == 'claim' then
      local asides = redis.call('HGETALL', KEYS[i] .. 'asides')
      for n = 1, #asides, 2 do length = length + redis.call('LLEN', KEYS[i] .. 'aside:' .. asides[n]) end
    end
    reply[i] = length
  end
  return true
end)
return reply
