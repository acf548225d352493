--@ fresh
-- A bag keeps the payloads of ids: bag[id] is "score:payload" for one payload and "*" for several, which are then
-- the zset bag:<id>. The queue, and the morgue, are each an index (a zset of ids) beside a bag. The queue's bag also has
-- the records of fresh jobs, which nearly all are, and which take half the memory.
local CHUNK = 1000 -- arguments to one command; unpack fails at 8,000

local function split(text)
  local colon = string.find(text, ':', 1, true)
  return string.sub(text, 1, colon - 1), string.sub(text, colon + 1)
end

-- What holds the payloads of an id, with the whole score.
local function bag_get(bag, id)
  local held = redis.call('HGET', bag, id)
  if not held or not is_fresh(held) then return held end
  return redis.call('ZSCORE', string.gsub(bag, 'payloads$', 'due'), id) .. ':' .. string.sub(held, 5)
end

-- Equal payloads keep the lower score. The id's due time may be about to change, so its job is fresh no more.
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
