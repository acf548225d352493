-- Rings the owner when a shard it believes idle has work earlier than it knows of. `waiting` is the due time it knows
-- ("inf" for none); once rung for work due now it is not rung again until it has looked.
--
-- `bell` is the list on which the shard's thread waits, if it has one. While it waits, and nobody has rung since, `idle`
-- exists beside it: whoever rings takes that away, and says whether it was there.
local FORGET = 60 -- seconds after which the bell of a node that has died is forgotten

local function read_bell(P)
  return redis.call('HMGET', P .. 'owner', 'waiting', 'node', 'bell', 'open', 'until')
end

local function says_earlier(owner, due_us)
  return owner[1] and due_us / 1000000 < (tonumber(owner[1]) or math.huge)
end

local function take_idle(bell)
  return redis.call('UNLINK', bell .. ':idle') == 1
end

local function tell(bell, message)
  redis.call('RPUSH', bell, message)
  redis.call('EXPIRE', bell, FORGET)
end

local function ring(P, due_us, now, owner)
  owner = owner or read_bell(P)
  if not says_earlier(owner, due_us) then return end
  if due_us <= now then
    redis.call('HDEL', P .. 'owner', 'waiting')
  else
    redis.call('HSET', P .. 'owner', 'waiting', stamp(due_us))
  end
  local message = P .. ' ' .. stamp(math.max(due_us - now, 0))
  if owner[3] then
    tell(owner[3], message .. (take_idle(owner[3]) and ' 1' or ' 0'))
  else
    redis.call('PUBLISH', string.match(P, '^(.-):{') .. ':bell:' .. owner[2], message)
  end
end

-- The oldest due time of the queue ('' for none); when nothing is due yet the bell is armed.
local function oldest_due(P, now)
  local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
  if not oldest or tonumber(oldest) > now / 1000000 then
    redis.call('HSET', P .. 'owner', 'waiting', oldest or 'inf')
  end
  return oldest or ''
end
