-- end_session: remember that a session of the web view is over, until its cookie is.
-- KEYS  1 lowkiq:web:ended
-- ARGV  1 the session's nonce, 2 seconds that its cookie may have left, 3 how many are remembered
-- returns how many there are
--@ shard now stamp
local now = now_us()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', stamp(now))
redis.call('ZADD', KEYS[1], stamp(now + ARGV[2] * 1000000), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
