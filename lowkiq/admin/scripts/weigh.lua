-- weigh: about how many bytes the payloads of jobs have; several of an id are taken to be as long as its lowest.
-- KEYS  1 shard prefix
-- ARGV  1 'morgue', or another place for the queue, then ids
-- returns the bytes
--@ shard attempt
local payloads, bytes = KEYS[1] .. (ARGV[1] == 'morgue' and 'morgue:' or '') .. 'payloads', 0
for i = 2, #ARGV do
  local key, length = payloads .. ':' .. ARGV[i], redis.call('HSTRLEN', payloads, ARGV[i])
  local lowest = length == 1 and attempt(redis.call, 'ZRANGE', key, 0, 0) or {}
  bytes = bytes + (lowest[1] and #lowest[1] * redis.call('ZCARD', key) or length)
end
return bytes
