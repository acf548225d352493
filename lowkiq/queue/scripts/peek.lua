-- peek: the oldest due time of each shard; for one with claims of which its owner has none in hand, now: it has not heard
-- that something was handed over (push.lua), and its next claim tells.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- ARGV  for each key '1' if the owner has claims of it in hand; left out, it has none
-- returns {now, then for each key its oldest due time or ''}
--@ shard now stamp
--@ set_back clock_back
--@ shard each
local now = now_us()
local reply = {stamp(now)}

each(function(first, last)
  for i = first, last do
    local P = KEYS[i]
    reply[i + 1] = '' -- of a shard that can't be read
    local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or ''
    if oldest == 'inf' then oldest = '' end
    if oldest ~= '' and oldest * 1000000 > now then
      local meta = redis.call('HMGET', P .. 'meta', 'last_score', 'seen')
      if was_due(oldest * 1000000, now, tonumber(meta[1]) or 0, meta[2]) then oldest = reply[1] end
    end
    local has_claims = ARGV[i] ~= '1' and redis.call('EXISTS', P .. 'claim', P .. 'asides') > 0
    -- Of those that are away others tell.
    if has_claims and redis.call('EXISTS', P .. 'away') == 1 then
      has_claims = redis.call('EXISTS', P .. 'claim') == 1 or redis.call('HLEN', P .. 'asides') > redis.call('HLEN', P .. 'away')
    end
    if has_claims then oldest = reply[1] end
    reply[i + 1] = oldest
  end
  return true
end)
return reply
