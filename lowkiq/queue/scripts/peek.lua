-- peek: the oldest due time of each shard; for one that is claimed, now: its owner, unless it has that claim in hand, has
-- not heard that something was handed over (push.lua), and its next claim tells.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- returns {now, then for each key its oldest due time or ''}
--@ shard now stamp clock_back each
local now = now_us()
local reply = {stamp(now)}

each(function(first, last)
  for i = first, last do
    local P = KEYS[i]
    reply[i + 1] = '' -- of a shard that can't be read
    local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or ''
    if oldest ~= '' and oldest * 1000000 > now then
      local meta = redis.call('HMGET', P .. 'meta', 'last_score', 'seen')
      if was_due(oldest * 1000000, now, tonumber(meta[1]) or 0, meta[2]) then oldest = reply[1] end
    end
    if redis.call('EXISTS', P .. 'claim') == 1 then oldest = reply[1] end
    reply[i + 1] = oldest
  end
  return true
end)
return reply
