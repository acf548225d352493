--! allow-oom
-- renew: keep the leases of several shards. A lease that has run out is kept too, if nobody has taken it.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  1 node, 2 ttl in seconds, then the epoch for each key
-- returns for each key 0 (another node or epoch owns it), 1 (kept) or 2 (kept, and another node wants it as its part); 4
--       more for one that is kept and has cancelled jobs, 8 for one that is paused and does not rest (pausing.lua), 16 for
--       one that has letters (letters.lua), 32 for one with jobs that wait for others (waiting.lua),
--       64 for one with jobs that recur (recurring.lua), 128 for one of which claims are away (away.lua)
--@ shard now stamp oom each
local owners = {}
each(function(first, last)
  for i = first, last do
    owners[i] = {} -- of a shard that can't be read
    owners[i] = redis.call('HMGET', KEYS[i] .. 'owner', 'node', 'epoch', 'wanted', 'rests')
  end
  return true
end)
local RARE, rare = {'cancels', 'paused', 'outbox', 'waits', 'recurs', 'away'}, {}
for i = 1, SHARDS do
  for j, name in ipairs(RARE) do rare[i * #RARE + j - #RARE] = KEYS[i] .. name end
end
local has_rare = redis.call('EXISTS', unpack(rare)) > 0
local lease_end = stamp(now_us() + ARGV[2] * 1000000)
local kept = {}
for i = 1, SHARDS do
  kept[i] = 0
  if owners[i][1] == ARGV[1] and owners[i][2] == ARGV[i + 2] then
    free_first(KEYS[i])
    redis.call('HSET', KEYS[i] .. 'owner', 'until', lease_end)
    kept[i] = owners[i][3] and owners[i][3] ~= ARGV[1] and 2 or 1
    if has_rare and redis.call('EXISTS', KEYS[i] .. 'cancels') == 1 then kept[i] = kept[i] + 4 end
    local is_restless = has_rare and owners[i][4] ~= ARGV[i + 2]
    if is_restless and redis.call('EXISTS', KEYS[i] .. 'paused') == 1 then kept[i] = kept[i] + 8 end
    if has_rare and redis.call('EXISTS', KEYS[i] .. 'outbox') == 1 then kept[i] = kept[i] + 16 end
    if has_rare and redis.call('EXISTS', KEYS[i] .. 'waits') == 1 then kept[i] = kept[i] + 32 end
    if has_rare and redis.call('EXISTS', KEYS[i] .. 'recurs') == 1 then kept[i] = kept[i] + 64 end
    if has_rare and redis.call('EXISTS', KEYS[i] .. 'away') == 1 then kept[i] = kept[i] + 128 end
  end
end
return kept
