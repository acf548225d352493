-- `bell` is the list on which a shard's thread waits, if it has one. While it waits, and nobody has rung since, `idle`
-- exists beside it: whoever rings takes that away, and says whether it was there.
local FORGET = '60' -- seconds after which the bell of a node that has died is forgotten

local function take_idle(bell)
  return redis.call('UNLINK', bell .. ':idle') == 1
end

local function tell(bell, message)
  redis.call('RPUSH', bell, message)
  redis.call('EXPIRE', bell, FORGET)
end
