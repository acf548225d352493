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
