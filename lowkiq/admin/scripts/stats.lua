-- stats: what each shard holds and has done.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- returns {now, then for each key {queued, retries, claimed, morgue, oldest due or '', processed, failed, pushed,
--          merged, owner or '', seconds its lease still has, epoch}}
--@ shard now stamp clock_back count
local now = now_us()
local reply = {stamp(now)}
for i = 1, SHARDS do
  local P = KEYS[i]
  local counters = redis.call('HMGET', P .. 'meta', 'processed', 'failed', 'pushed', 'merged', 'last_score', 'seen')
  local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or ''
  if oldest ~= '' and was_due(oldest * 1000000, now, tonumber(counters[5]) or 0, counters[6]) then oldest = reply[1] end
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'until', 'epoch')
  reply[i + 1] = {
    redis.call('ZCARD', P .. 'due'),
    redis.call('ZCARD', P .. 'retries'),
    redis.call('LLEN', P .. 'claim') / 2,
    redis.call('ZCARD', P .. 'morgue'),
    oldest,
    counters[1] or '0', counters[2] or '0', counters[3] or '0', counters[4] or '0',
    owner[1] or '',
    string.format('%.6f', math.max((tonumber(owner[2]) or 0) - now / 1000000, 0)),
    owner[3] or '0',
  }
end
return reply
