--@ clock
-- turn: whether it is the caller's turn: the first to ask after the last one. Whoever has it keeps it if it asks again in vain.
-- KEYS  1 the turn
-- ARGV  1 node, 2 seconds that a turn takes
-- returns 1 or 0
-- It keeps the time instead of letting Redis forget the key: with the clock set back, that would take as much longer.
local now = now_us() / 1000000
local since = tonumber(redis.call('GET', KEYS[1]) or '') or -math.huge
if since <= now and now - since < tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.6f', now), 'EX', 60)
return 1
