-- turn: take the next turn, if nobody has it.
-- KEYS  1 the turn, which exists for as long as it takes
-- ARGV  1 node, 2 milliseconds that a turn takes
-- returns 1 or 0
-- A turn with more than its whole time left is of a clock that was set back since, and one without an end is no turn.
local left = redis.call('PTTL', KEYS[1])
if left > tonumber(ARGV[2]) or left == -1 then redis.call('UNLINK', KEYS[1]) end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
