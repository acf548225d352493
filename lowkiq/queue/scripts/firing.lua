-- firing: read which entries of a shard are to fire (includes/recurring.lua).
-- KEYS  1 shard prefix
-- ARGV  1 most
-- returns {now, when the next one fires or '', then of each that is to fire: id, when it was to, what it is}; of a shard to which
--       jobs are still being moved (moving.lua) none fires, nor will one before all has come
--@ shard now stamp
--@ recurring next
local P = KEYS[1]
local now = stamp(now_us())
if redis.call('EXISTS', P .. 'feeders') == 1 then return {now, ''} end
local reply = {now, next_firing(P)}
local found = redis.call('ZRANGEBYSCORE', P .. 'recurs', '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #found, 2 do
  reply[#reply + 1], reply[#reply + 2] = found[i], found[i + 1]
  reply[#reply + 1] = redis.call('HGET', P .. 'recurring', found[i]) or ''
end
return reply
