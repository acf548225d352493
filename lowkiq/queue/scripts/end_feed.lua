--! allow-oom
-- end_feed: all that an old shard held has come (moving.lua). After the last of those that feed it a new shard is claimed
-- from, and its owner woken. Repeating it changes nothing.
-- KEYS  1 prefix of the new shard
-- ARGV  1 layout, 2 index of the old shard, 3 epoch of its mover, then counters of the old shard that go on here: name, number
-- returns 1, or 0 if that was known   errors: LAYOUT, NEWER, RESHARDED, FENCED (a later mover is known)
--@ moving feeder
--@ shard clock
--@ bell ring ring_node
--@ letters post
--@ away lease keep
local P, old, epoch = KEYS[1], ARGV[2], ARGV[3]
if redis.call('HEXISTS', P .. 'meta', 'whole') == 1 then return 0 end
if redis.call('HGET', P .. 'fed', old) == epoch and redis.call('HEXISTS', P .. 'feeders', old) == 0 then return 0 end
local refusal = check_feeder(P, ARGV[1], old, epoch)
if refusal then return refusal end
-- It comes first, since it frees.
redis.call('HDEL', P .. 'feeders', old)
redis.call('HDEL', P .. 'meta', 'pause:' .. old)
-- Who runs what has come may not have heard of it yet.
if redis.call('EXISTS', P .. 'away') == 1 then
  local names, now = redis.call('HGETALL', P .. 'away'), now_us()
  for i = 1, #names, 2 do
    local lease = parse_away(names[i + 1])
    lease.ends = math.max(lease.ends, now + lease.ttl * 1000000)
    keep_away(P, names[i], lease)
  end
end
-- A mover may die before it has closed the old shard: whoever takes over tells the same again.
if redis.call('HSET', P .. 'fed', old, epoch) == 1 then
  for i = 4, #ARGV, 2 do redis.call('HINCRBY', P .. 'meta', ARGV[i], ARGV[i + 1]) end
end
if redis.call('EXISTS', P .. 'feeders') == 1 then return 1 end
redis.call('HSET', P .. 'meta', 'whole', '1')
-- Epochs go on from those of the old shards, of which their movers have the last (I2). An owner that has a lower one has lost
-- the lease, and is given another: until here it could claim nothing.
local last, fed = redis.call('HGET', P .. 'owner', 'epoch') or '0', redis.call('HGETALL', P .. 'fed')
local highest = last
for i = 2, #fed, 2 do
  if tonumber(fed[i]) > tonumber(highest) then highest = fed[i] end
end
if highest ~= last then
  redis.call('HSET', P .. 'owner', 'epoch', highest)
end
redis.call('UNLINK', P .. 'fed')
if redis.call('HGET', P .. 'owner', 'node') then
  -- What it knew is of before. At inf are those that are held.
  redis.call('HSET', P .. 'owner', 'waiting', 'inf')
  local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
  if oldest and oldest ~= 'inf' then ring(P, oldest * 1000000, shard_now(P)) end
  if redis.call('EXISTS', P .. 'outbox') == 1 then ring_post(P) end
  local node = redis.call('HGET', P .. 'owner', 'node')
  if redis.call('EXISTS', P .. 'recurs') == 1 then ring_node(P, node, 'recurs ' .. P) end
end
return 1
