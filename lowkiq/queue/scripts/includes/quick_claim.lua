-- The quick way of a claim (claim.lua, which has its keys, arguments and reply). Most claims find nothing, or compact records
-- that are due and nothing else in their place. They are done here, all others are left to what follows, with nothing
-- changed. No functions are made before this, as Lua makes each anew whenever it comes by: of what a claim of few costs
-- Redis, that was half.

--- compact
local SPAN_SECONDS = 2147 -- in which a compact record's due time follows from the last one's: SPAN, or a little less
local FLAT = 128 -- entries up to which Redis keeps a hash as a flat list (its default for hash-max-listpack-entries)

do
  local P, number = KEYS[1], ARGV[3]
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score')
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local is_ours = owner[1] == ARGV[1] and owner[2] == ARGV[2] and tonumber(owner[3] or 0) < tonumber(number)
  local is_usual = is_ours and meta[1] == ARGV[4] and tonumber(meta[2] or 0) <= now
    and redis.call('EXISTS', HINDERS.claim) == 0

  local queued = is_usual and redis.call('ZCARD', P .. 'due')
  local now_text = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
  if queued == 0 then
    redis.call('HDEL', P .. 'owner', 'open')
    if ARGV[10] then
      redis.call('HSET', P .. 'owner', 'claim', number, 'waiting', 'inf')
    else
      redis.call('HSET', P .. 'owner', 'claim', number, 'waiting', 'inf', 'open', ARGV[2] .. ' ' .. number)
    end
    return {now_text, '', {}, '0'}
  end

  if queued then
    local limit, max_in_all, max_bytes = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
    local count = math.min(queued, limit, max_in_all)
    local first = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')
    local last = count == 1 and first or redis.call('ZRANGE', P .. 'due', count - 1, count - 1, 'WITHSCORES')
    local last_us = math.floor(last[2] * 1000000 + 0.5)
    local are_compact = last_us <= now and last[2] - first[2] < SPAN_SECONDS
    local ids = are_compact and redis.call('ZRANGE', P .. 'due', '0', count - 1)
    local found, taken, bytes, step = {}, 0, 0, FIRST_STEP
    local byte = string.byte
    -- In a flat list each field is searched for from the front, so one that is taken whole is read in one go: mostly it
    -- has the jobs in the order in which they are due.
    local encoding = are_compact and count == queued and count > FIRST_STEP and count <= FLAT
      and redis.pcall('OBJECT', 'ENCODING', P .. 'payloads') -- which not every user may ask, nor fakeredis knows
    local is_flat = encoding == 'listpack' or encoding == 'ziplist'
    local all = is_flat and redis.call('HGETALL', P .. 'payloads') or {}
    while all[taken * 2 + 1] and all[taken * 2 + 1] == ids[taken + 1] and byte(all[taken * 2 + 2]) >= 128 do
      taken = taken + 1
      bytes = bytes + #all[taken * 2]
    end
    if taken == count and #all == count * 2 and bytes <= max_bytes then found = all else taken, bytes = 0, 0 end

    while are_compact and taken < count and bytes < max_bytes do
      local to = math.min(taken + step, count)
      step = math.min(step * 2, LAST_STEP)
      local records = redis.call('HMGET', P .. 'payloads', unpack(ids, taken + 1, to))
      for i = 1, #records do
        local record = records[i]
        are_compact = record and byte(record) >= 128
        if not are_compact or bytes >= max_bytes then break end
        taken = taken + 1
        found[taken * 2 - 1], found[taken * 2] = ids[taken], record
        bytes = bytes + #record
      end
    end

    if are_compact then
      local last_due = string.format('%.0f', last_us)
      -- This comes first, since it frees: so claims go on when memory is full.
      redis.call('HDEL', P .. 'owner', 'open')
      redis.call('HSET', P .. 'owner', 'claim', number, 'last_due', last_due)
      -- Then into the claim, and only then out of the queue: a user who lacks the right to one of these loses no job.
      redis.call('RPUSH', P .. 'claim', unpack(found))
      if taken == queued and redis.call('HLEN', P .. 'payloads') == queued then
        redis.call('UNLINK', P .. 'due', P .. 'payloads')
      else
        redis.call('ZREMRANGEBYRANK', P .. 'due', '0', taken - 1)
        redis.call('HDEL', P .. 'payloads', unpack(ids, 1, taken))
      end
      local next_due = taken < queued and redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')[2]
      return {now_text, next_due or '', found, last_due}
    end
  end
end
