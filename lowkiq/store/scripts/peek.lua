--@ clock
-- peek: the oldest due time of each shard.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- returns {now, then for each key its oldest due time or ''}
local reply = {stamp(now_us())}
for i = 1, #KEYS do
  reply[i + 1] = redis.call('ZRANGE', KEYS[i] .. 'due', 0, 0, 'WITHSCORES')[2] or ''
end
return reply
