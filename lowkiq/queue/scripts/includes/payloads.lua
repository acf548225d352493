-- Payloads of ids: the hash `key` has "score:payload" for an id with one payload and "*" for one with several, which are
-- then the zset key:<id>. The queue, and the morgue, are each an index (a zset of ids) beside such payloads. Those of the
-- queue are mostly compact records, which take half the memory.

--- span
-- A job that has never failed mostly has one payload, whose score is when it is due. Its record, in the queue as in the
-- claim, is compact: four bytes and the payload. They are the last 31 bits of that time in microseconds, behind a 1, which
-- no text has there. So a claim takes it as it is, and asks for the due time of its last job only, from which those of the
-- others follow: up to Redis 7.0, to print a score takes longer than all else that is done for a job.
local SPAN = 2 ^ 31 -- 36 minutes

--- compact
--@ payloads span
local function compact(us, payload)
  local low = us % SPAN
  local a, b, c = low % 2 ^ 24, low % 65536, low % 256
  return string.char(128 + (low - a) / 2 ^ 24, (a - b) / 65536, (b - c) / 256, c) .. payload
end

--- split
local function split(text)
  local colon = string.find(text, ':', 1, true)
  return string.sub(text, 1, colon - 1), string.sub(text, colon + 1)
end

--- kind
local function is_compact(record)
  return string.byte(record) >= 128
end

--- get
--@ payloads kind
-- What holds the payloads of an id, with the whole score.
local function payloads_get(key, id)
  local held = redis.call('HGET', key, id)
  if not held or not is_compact(held) then return held end
  return redis.call('ZSCORE', string.gsub(key, 'payloads$', 'due'), id) .. ':' .. string.sub(held, 5)
end

--- lowest
--@ payloads split get
-- The lowest score of an id's payloads, if it has any.
local function lowest_score(key, id)
  local held = payloads_get(key, id)
  if held == '*' then return redis.call('ZRANGE', key .. ':' .. id, 0, 0, 'WITHSCORES')[2] end
  return held and (split(held))
end

--- add
--@ payloads split get
--@ rules equal
-- Of equal payloads the last word counts: they have the higher score, or the lower one by their id's rule. The id's due time
-- may be about to change, so its record is compact no more.
local function payloads_add(key, id, score, payload)
  local held = payloads_get(key, id)
  if not held then
    redis.call('HSET', key, id, score .. ':' .. payload)
    return
  end
  if held == '*' then
    redis.call('ZADD', key .. ':' .. id, which_of_equal(key, id), score, payload)
    return
  end
  local held_score, held_payload = split(held)
  if held_payload ~= payload then
    redis.call('ZADD', key .. ':' .. id, held_score, held_payload, score, payload)
    redis.call('HSET', key, id, '*')
  else
    local is_higher = tonumber(score) > tonumber(held_score)
    if is_higher ~= (which_of_equal(key, id) == 'GT') then score = held_score end
    redis.call('HSET', key, id, score .. ':' .. payload)
  end
end

--- fold
-- A zset that has come down to one payload, or none, goes back into the hash.
local function payloads_fold(key, id)
  local zset = key .. ':' .. id
  local count = redis.call('ZCARD', zset)
  if count > 1 then return end
  if count == 1 then
    local left = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
    redis.call('HSET', key, id, left[2] .. ':' .. left[1])
  else
    redis.call('HDEL', key, id)
  end
  redis.call('UNLINK', zset)
end

--- chunk
local CHUNK = 1000 -- arguments to one command; unpack fails at 8,000

--- zadd
--@ payloads chunk
-- ZADD of a flat list of member, score, member, score ... Of those that are there `which` score counts, 'GT' or 'LT'.
local function zadd_all(key, members, which)
  for first = 1, #members, CHUNK do
    local arguments = {}
    for i = first, math.min(first + CHUNK - 1, #members), 2 do
      arguments[#arguments + 1] = members[i + 1]
      arguments[#arguments + 1] = members[i]
    end
    redis.call('ZADD', key, which, unpack(arguments))
  end
end

--- absorb
--@ payloads split get zadd
--@ rules equal
-- Puts a whole zset of payloads to those of an id; it is gone afterwards. A rename where that is enough, and the fewer to the
-- more where it is not: a claim's to those of an id with a million.
local function payloads_absorb(key, id, zset)
  if redis.call('EXISTS', zset) == 0 then return end -- it was, before something after it was refused
  local held = payloads_get(key, id)
  if held == '*' then
    local few, many = zset, key .. ':' .. id
    if redis.call('ZCARD', few) > redis.call('ZCARD', many) then few, many = many, few end
    zadd_all(many, redis.call('ZRANGE', few, 0, -1, 'WITHSCORES'), which_of_equal(key, id))
    redis.call('UNLINK', few)
    if few ~= zset then redis.call('RENAME', zset, key .. ':' .. id) end
    return
  end
  if held then
    local score, payload = split(held)
    redis.call('ZADD', zset, which_of_equal(key, id), score, payload)
  end
  redis.call('HSET', key, id, '*')
  redis.call('RENAME', zset, key .. ':' .. id)
end

--- move
--@ payloads add fold absorb
-- Moves the payloads of an id, at most `limit` of the lowest when both keys hold several.
-- Returns how many the source still holds.
local function payloads_move(source, target, id, limit)
  local held = payloads_get(source, id)
  if not held then return 0 end
  if held ~= '*' then
    redis.call('HDEL', source, id)
    payloads_add(target, id, split(held))
    return 0
  end
  local zset = source .. ':' .. id
  local left = redis.call('ZCARD', zset) - limit
  if left <= 0 or redis.call('HGET', target, id) ~= '*' then
    redis.call('HDEL', source, id)
    payloads_absorb(target, id, zset)
    return 0
  end
  local lowest = redis.call('ZRANGE', zset, 0, limit - 1, 'WITHSCORES')
  redis.call('ZREMRANGEBYRANK', zset, 0, limit - 1)
  zadd_all(target .. ':' .. id, lowest, which_of_equal(target, id))
  payloads_fold(source, id)
  return left
end

--- bulk_write
-- Redis keeps a small zset, or hash, as a flat list that it searches from the front, and a zset's scores in it as text.
-- A batch that goes into one costs the square of its length, until the list is at last turned into a table: at a hundred
-- jobs more than all the rest of their way. So a batch gets its table at once: Redis makes one for whatever is longer
-- than 64 bytes (its own default for zset-max-listpack-value and hash-max-listpack-value).
local BULK = 24
local LONG = string.rep(' ', 65)

-- ZADD NX of the first `count` words of a flat list of score, member, score, member ...; returns how many were added.
local function bulk_zadd(key, list, count)
  local is_table = count < BULK or redis.call('EXISTS', key) == 1
  if not is_table then redis.call('ZADD', key, list[1], list[2] .. LONG) end
  local added = redis.call('ZADD', key, 'NX', unpack(list, 1, count))
  if is_table then return added end
  redis.call('ZREM', key, list[2] .. LONG)
  -- An id that looks like that one was not added, and has just been removed.
  if added < count / 2 then added = added + redis.call('ZADD', key, 'NX', unpack(list, 1, count)) end
  return added
end

-- HSET of the first `count` words of a flat list of field, value, field, value ...
local function bulk_hset(key, list, count)
  if count >= BULK then redis.call('HSET', key, list[1], LONG) end
  redis.call('HSET', key, unpack(list, 1, count))
end
