-- tell_hand: a node tells how far it is with what it was asked for. What is over stays so; what is forgotten, too.
-- KEYS  1 lowkiq:{hands}:ID
-- ARGV  1 the request without the time, as it begins in JSON, 2 seconds for which it is kept, 3 and more: texts by which
--       one that is over is known
-- returns 1 or 0
--@ shard now stamp
local known = redis.call('GETRANGE', KEYS[1], 0, 4095)
if known == '' then return 0 end
for i = 3, #ARGV do
  if string.find(known, ARGV[i], 1, true) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1] .. ',"told_at":' .. stamp(now_us()) .. '}', 'EX', ARGV[2])
return 1
