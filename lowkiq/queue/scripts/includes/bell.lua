-- How the owner of a shard that it believes idle learns of work. `waiting` is the due time that it knows of ("inf" for
-- none). `bell` is the list on which the shard's thread waits, if it has one; while it waits, and nobody has rung since,
-- `idle` exists beside it: whoever rings takes that away, and says whether it was there.

--- tell
local FORGET = '60' -- seconds after which the bell of a node that has died is forgotten

local function take_idle(bell)
  return redis.call('UNLINK', bell .. ':idle') == 1
end

local function tell(bell, message)
  redis.call('RPUSH', bell, message)
  redis.call('EXPIRE', bell, FORGET)
end

--- ring_node
local function ring_node(P, node, message)
  redis.call('PUBLISH', string.match(P, '^(.-):{') .. ':bell:' .. node, message)
end

--- ring
--@ bell tell ring_node
--@ shard stamp
-- Rings the owner when there is work earlier than it knows of. Once rung for work due now it is not rung again until it
-- has looked.
local function ring(P, due_us, now)
  local waiting, node, bell = unpack(redis.call('HMGET', P .. 'owner', 'waiting', 'node', 'bell'))
  if not waiting or due_us / 1000000 >= (tonumber(waiting) or math.huge) then return end
  if due_us <= now then
    redis.call('HDEL', P .. 'owner', 'waiting')
  else
    redis.call('HSET', P .. 'owner', 'waiting', stamp(due_us))
  end
  local message = P .. ' ' .. stamp(math.max(due_us - now, 0))
  if bell then
    tell(bell, message .. (take_idle(bell) and ' 1' or ' 0'))
  else
    ring_node(P, node, message)
  end
end

--- oldest_due
-- The oldest due time of the queue ('' for none, or if all that is left is parked); when nothing is due yet the bell is
-- armed.
local function oldest_due(P, now)
  local oldest = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')[2]
  if oldest == 'inf' then oldest = nil end
  if not oldest or tonumber(oldest) > now / 1000000 then
    redis.call('HSET', P .. 'owner', 'waiting', oldest or 'inf')
  end
  return oldest or ''
end
