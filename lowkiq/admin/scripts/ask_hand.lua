-- ask_hand: ask a node to do something, once, and ring it.
-- KEYS  1 lowkiq:{hands}:to:NODE, 2 lowkiq:{hands}:ID
-- ARGV  1 the request without its time, as it begins in JSON, 2 seconds for which it is to be heard, 3 seconds for which
--       the answer is kept, 4 how many may wait, 5 the node's doorbell, 6 what rings for it
-- returns when it was asked; '' if too many wait already
--@ shard now stamp
local at = stamp(now_us())
if redis.call('EXISTS', KEYS[2]) == 1 then return at end -- it is repeated
if redis.call('TYPE', KEYS[1]).ok ~= 'list' then redis.call('UNLINK', KEYS[1]) end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[4]) then return '' end
local request = ARGV[1] .. ',"asked_at":' .. at .. ',"told_at":' .. at .. '}'
redis.call('SET', KEYS[2], request, 'EX', ARGV[3])
redis.call('RPUSH', KEYS[1], request)
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[5], ARGV[6])
return at
