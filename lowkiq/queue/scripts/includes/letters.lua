-- What follows from a job that is done is written where the job ends, in the same script: letters, to ids of any queue.
-- `outbox` has the letters of a shard by their numbers, which rise, and `letters` what is in them. The shard's owner takes
-- them to the shards that they are for, in order (relay.lua, receive.lua), and any number of times, as it may die anywhere.
--
-- So that a push of a letter happens once, the shard that gets it remembers it: the zset heard:ID has the names of the letters
-- that were received for an id, and `heard` the ids that have such. In the outbox a letter that has arrived gives way to one that has it forgotten again, and only when
-- that has arrived too is nothing left of it. What is remembered of an id moves with it, and so does a letter, with the id
-- that it is of: of a queue that is resharded no shard receives any before all has come (moving.lua).
--
-- One kind is for the owner itself: 'buried' has an id that deaths have buried, of which `retries_exhausted` is to hear
-- (burials.py). Before that is called the letter becomes 'begun', and afterwards it goes: a call in which its node dies is
-- not made again.
--
-- A letter's words are each written behind its length and a colon: the id that it is of, its kind, the queue that it is
-- for and the shards_count that this begins with, then what its kind has. 'push' and 'forget' have the id, and a push the
-- other words of one (push.lua).

--- number
--@ shard now
-- The number of the next letter of a shard, at least: they rise.
local function next_number(P)
  return string.format('%.0f', math.max(now_us(), (tonumber(redis.call('HGET', P .. 'meta', 'posted')) or 0) + 1))
end

--- write
--@ letters number
-- Puts a letter into the outbox. It is named after its shard and number.
local function write_letter(P, record)
  local written = next_number(P)
  local name = string.match(P, '{(.*)}') .. ':' .. written
  redis.call('HSET', P .. 'meta', 'posted', written)
  redis.call('HSET', P .. 'letters', name, record)
  redis.call('ZADD', P .. 'outbox', written, name)
end

--- of
-- The id that a letter is of ("*id": waiting.lua).
local function letter_of(record)
  if string.sub(record, 1, 1) == '*' then return string.sub(record, 2) end
  local length, at = string.match(record, '^(%d+):()')
  return length and string.sub(record, at, at + length - 1) or ''
end

--- sent
-- Whether a letter is one that is sent; the others are for the owner itself.
local function is_sent(record)
  local length, at = string.match(record, '^(%d+):()')
  local kind = length and string.match(record, '^%d+:(%l+)', at + length)
  return kind ~= 'buried' and kind ~= 'begun'
end

--- post
--@ bell ring_node
-- Has the owner take letters along that something else than a settle of its own has written.
local function ring_post(P)
  local node = redis.call('HGET', P .. 'owner', 'node')
  if node then ring_node(P, node, 'letters ' .. P) end
end
