-- end_incidents: incidents that lasted are over. Those that nobody noted, or that are over already, stay as they are. None
-- ends before it began, nor later than now.
-- KEYS  1 lowkiq:{incidents}, 2 lowkiq:{incidents}:ends
-- ARGV  for each its key, and when it ended ('' for now)
-- returns how many have ended
--@ shard now stamp attempt
local now, ended = now_us(), 0

local function finish(key, at)
  local began = redis.call('ZSCORE', KEYS[1], key)
  if not began or redis.call('HEXISTS', KEYS[2], key) == 1 then return end
  at = math.min((tonumber(at) or math.huge) * 1000000, now)
  redis.call('HSET', KEYS[2], key, stamp(math.max(at, began * 1000000)))
  ended = ended + 1
end

for i = 1, #ARGV, 2 do attempt(finish, ARGV[i], ARGV[i + 1]) end
if ended > 0 then redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[1]), 1)) end
return ended
