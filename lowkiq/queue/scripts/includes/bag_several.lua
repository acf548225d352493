--@ bag
-- A zset that has come down to one payload, or none, goes back into the hash.
local function bag_fold(bag, id)
  local key = bag .. ':' .. id
  local count = redis.call('ZCARD', key)
  if count > 1 then return end
  if count == 1 then
    local left = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    redis.call('HSET', bag, id, left[2] .. ':' .. left[1])
  else
    redis.call('HDEL', bag, id)
  end
  redis.call('UNLINK', key)
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
  if redis.call('EXISTS', zset) == 0 then return end -- it was, before something after it was refused
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
  redis.call('HSET', bag, id, '*')
  redis.call('RENAME', zset, bag .. ':' .. id)
end
