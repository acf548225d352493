-- A bag keeps the payloads of ids: bag[id] is "score:payload" for one payload and "*" for several, which are then
-- the zset bag:<id>. The queue, and the morgue, are each an index (a zset of ids) beside a bag. In the queue's bag a
-- score that equals the due time is left out: ":payload" is what nearly all fresh jobs are, and takes half the memory.
local CHUNK = 1000 -- arguments to one command; unpack fails at 8,000

local function split(text)
  local colon = string.find(text, ':', 1, true)
  return string.sub(text, 1, colon - 1), string.sub(text, colon + 1)
end

local COLON = 58

-- What holds the payloads of an id, with the score if that was left out.
local function bag_get(bag, id)
  local held = redis.call('HGET', bag, id)
  if not held or string.byte(held) ~= COLON then return held end
  return redis.call('ZSCORE', string.gsub(bag, 'payloads$', 'due'), id) .. held
end

-- Equal payloads keep the lower score, which from then on is written out: the id's due time may be about to change.
local function bag_add(bag, id, score, payload)
  local held = bag_get(bag, id)
  if not held then
    redis.call('HSET', bag, id, score .. ':' .. payload)
    return
  end
  if held == '*' then
    redis.call('ZADD', bag .. ':' .. id, 'LT', score, payload)
    return
  end
  local held_score, held_payload = split(held)
  if held_payload ~= payload then
    redis.call('ZADD', bag .. ':' .. id, held_score, held_payload, score, payload)
    redis.call('HSET', bag, id, '*')
  else
    if tonumber(held_score) < tonumber(score) then score = held_score end
    redis.call('HSET', bag, id, score .. ':' .. payload)
  end
end

-- A zset that has come down to one payload, or none, goes back into the hash.
local function bag_fold(bag, id)
  local key = bag .. ':' .. id
  local count = redis.call('ZCARD', key)
  if count > 1 then return end
  local left = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  redis.call('UNLINK', key)
  if count == 1 then
    redis.call('HSET', bag, id, left[2] .. ':' .. left[1])
  else
    redis.call('HDEL', bag, id)
  end
end

-- ZADD ... LT of a flat list of member, score, member, score ...
local function zadd_lowest(key, members)
  for first = 1, #members, CHUNK do
    local arguments = {}
    for i = first, math.min(first + CHUNK - 1, #members), 2 do
      arguments[#arguments + 1] = members[i + 1]
      arguments[#arguments + 1] = members[i]
    end
    redis.call('ZADD', key, 'LT', unpack(arguments))
  end
end

-- Puts a whole zset of payloads into a bag; the zset is gone afterwards. A rename where that is enough.
local function bag_absorb(bag, id, zset)
  local held = bag_get(bag, id)
  if held == '*' then
    zadd_lowest(bag .. ':' .. id, redis.call('ZRANGE', zset, 0, -1, 'WITHSCORES'))
    redis.call('UNLINK', zset)
    return
  end
  if held then
    local score, payload = split(held)
    redis.call('ZADD', zset, 'LT', score, payload)
  end
  redis.call('RENAME', zset, bag .. ':' .. id)
  redis.call('HSET', bag, id, '*')
end

-- Moves an id from one bag to another, at most `limit` of its lowest payloads when both hold several.
-- Returns how many payloads the source still holds.
local function bag_move(source, target, id, limit)
  local held = bag_get(source, id)
  if not held then return 0 end
  if held ~= '*' then
    redis.call('HDEL', source, id)
    bag_add(target, id, split(held))
    return 0
  end
  local zset = source .. ':' .. id
  local left = redis.call('ZCARD', zset) - limit
  if left <= 0 or redis.call('HGET', target, id) ~= '*' then
    redis.call('HDEL', source, id)
    bag_absorb(target, id, zset)
    return 0
  end
  local lowest = redis.call('ZRANGE', zset, 0, limit - 1, 'WITHSCORES')
  redis.call('ZREMRANGEBYRANK', zset, 0, limit - 1)
  zadd_lowest(target .. ':' .. id, lowest)
  bag_fold(source, id)
  return left
end

local function bag_drop(bag, id)
  if redis.call('HGET', bag, id) == '*' then
    redis.call('UNLINK', bag .. ':' .. id)
  end
  redis.call('HDEL', bag, id)
end
