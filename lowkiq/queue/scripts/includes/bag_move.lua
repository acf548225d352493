--@ bag_several
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
