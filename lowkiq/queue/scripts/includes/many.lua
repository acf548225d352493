-- Redis keeps a small zset, or hash, as a flat list that it searches from the front, and a zset's scores in it as text.
-- A batch that goes into one costs the square of its length, until the list is at last turned into a table: at a hundred
-- jobs more than all the rest of their way. So a batch gets its table at once: Redis makes one for whatever is longer
-- than 64 bytes (its own default for zset-max-listpack-value and hash-max-listpack-value).
local MANY = 24
local LONG = string.rep(' ', 65)

-- ZADD NX of the first `count` words of a flat list of score, member, score, member ...; returns how many were added.
local function zadd_many(key, list, count)
  local is_table = count < MANY or redis.call('EXISTS', key) == 1
  if not is_table then redis.call('ZADD', key, list[1], list[2] .. LONG) end
  local added = redis.call('ZADD', key, 'NX', unpack(list, 1, count))
  if is_table then return added end
  redis.call('ZREM', key, list[2] .. LONG)
  -- An id that looks like that one was not added, and has just been removed.
  if added < count / 2 then added = added + redis.call('ZADD', key, 'NX', unpack(list, 1, count)) end
  return added
end

-- HSET of the first `count` words of a flat list of field, value, field, value ...
local function hset_many(key, list, count)
  if count >= MANY then redis.call('HSET', key, list[1], LONG) end
  redis.call('HSET', key, unpack(list, 1, count))
end
