-- Most settles end a claim of which every job is done, and had one payload. They are done here, before functions are made
-- (claim_fresh.lua tells why), all others are left to what follows, with nothing changed.
if #ARGV == 10 and ARGV[4] == 'ack' and ARGV[5] == '0' then
  local P = KEYS[1]
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
  local is_ours = owner[1] == ARGV[1] and owner[2] == ARGV[2] and owner[3] == ARGV[3]
  local last_score = tonumber(redis.call('HGET', P .. 'meta', 'last_score') or 0)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if is_ours and last_score <= now and redis.call('EXISTS', P .. 'crashes', P .. 'errors') == 0 then
    local acked = redis.call('LLEN', P .. 'claim') / 2
    -- The first write is one that Redis does not refuse when memory is full.
    redis.call('UNLINK', P .. 'claim')
    if acked > 0 then redis.call('HINCRBY', P .. 'meta', 'processed', acked) end
    local oldest = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')[2]
    if not oldest or oldest * 1000000 > now then redis.call('HSET', P .. 'owner', 'waiting', oldest or 'inf') end
    return {acked, 0, 0, oldest or '', time[1] .. '.' .. string.sub('00000' .. time[2], -6)}
  end
end
