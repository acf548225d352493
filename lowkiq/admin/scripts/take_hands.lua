-- take_hands: take what a node was asked for. A reply that is lost takes its requests with it: none is done twice.
-- KEYS  1 lowkiq:{hands}:to:NODE
-- ARGV  1 how many at most, 2 bytes of one that are read
-- returns now, then the requests, the oldest first
--@ shard now stamp
local reply = {stamp(now_us())}
if redis.call('TYPE', KEYS[1]).ok ~= 'list' then
  redis.call('UNLINK', KEYS[1])
  return reply
end
for i, request in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)) do
  reply[i + 1] = string.sub(request, 1, ARGV[2])
end
redis.call('LTRIM', KEYS[1], #reply - 1, -1)
return reply
