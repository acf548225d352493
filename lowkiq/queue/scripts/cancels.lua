-- cancels: the jobs of a claim that somebody has cancelled (cancel.lua).
-- KEYS  1 shard prefix
-- ARGV  1 epoch, 2 number of the claim
-- returns their ids
local marks = redis.call('HGETALL', KEYS[1] .. 'cancels')
local ids = {}
for i = 1, #marks, 2 do
  if marks[i + 1] == ARGV[1] .. ' ' .. ARGV[2] then ids[#ids + 1] = marks[i] end
end
return ids
