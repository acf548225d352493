--! allow-oom
-- renew: keep the leases of several shards. A lease that has run out is kept too, if nobody has taken it.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 node, 2 ttl in seconds, then the epoch for each key
-- returns for each key 0 (another node or epoch owns it), 1 (kept) or 2 (kept, and another node wants it as its part); 4
--       more for one that is kept and has cancelled jobs
--@ shard now stamp oom each
local owners = {}
each(function(first, last)
  for i = first, last do
    owners[i] = {} -- of a shard that can't be read
    owners[i] = redis.call('HMGET', KEYS[i] .. 'owner', 'node', 'epoch', 'wanted')
  end
  return true
end)
local cancels = {}
for i = 1, SHARDS do cancels[i] = KEYS[i] .. 'cancels' end
local has_cancels = redis.call('EXISTS', unpack(cancels)) > 0
local lease_end = stamp(now_us() + ARGV[2] * 1000000)
local kept = {}
for i = 1, SHARDS do
  kept[i] = 0
  if owners[i][1] == ARGV[1] and owners[i][2] == ARGV[i + 2] then
    free_first(KEYS[i])
    redis.call('HSET', KEYS[i] .. 'owner', 'until', lease_end)
    kept[i] = owners[i][3] and owners[i][3] ~= ARGV[1] and 2 or 1
    if has_cancels and redis.call('EXISTS', cancels[i]) == 1 then kept[i] = kept[i] + 4 end
  end
end
return kept
