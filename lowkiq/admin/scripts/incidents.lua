-- incidents: a page of them, the newest first.
-- KEYS  1 lowkiq:{incidents}, 2 lowkiq:{incidents}:said, 3 lowkiq:{incidents}:ends
-- ARGV  1 the last one of the page before ('' for none), 2 the latest time ('+inf' for any), 3 how many, 4 bytes of one
--       that are read
-- returns for each its key, when it was, what is said of it and when it ended ('' for what there is none of)
local first = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[2], '+inf')
if ARGV[1] ~= '' then
  local rank, total = redis.call('ZRANK', KEYS[1], ARGV[1]), redis.call('ZCARD', KEYS[1])
  first = math.max(first, rank and total - rank or total)
end
local reply = redis.call('ZREVRANGE', KEYS[1], first, first + ARGV[3] - 1, 'WITHSCORES')
local found = {}
for i = 1, #reply, 2 do
  local key = reply[i]
  found[#found + 1] = key
  found[#found + 1] = reply[i + 1]
  found[#found + 1] = string.sub(redis.call('HGET', KEYS[2], key) or '', 1, ARGV[4])
  found[#found + 1] = string.sub(redis.call('HGET', KEYS[3], key) or '', 1, ARGV[4])
end
return found
