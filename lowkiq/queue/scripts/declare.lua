-- declare: note what the code of a node has to recur of a queue, and tell what that of all nodes has.
-- KEYS  1 lowkiq:declared:QUEUE: n:NODE has when it has said so last, and its digest; d:DIGEST when that was heard of first,
--       and its ids; -ID what is kept of an entry that was taken away (recurring.py)
-- ARGV  1 node, 2 digest of what it has, 3 ids of that, '' for none, 4 seconds after which a node that has not said so again is gone
-- returns {1 if nobody has had that before, then of each that a living node has: digest, since when, ids}
--@ shard now stamp
local key, now = KEYS[1], now_us()
-- When, and what; anybody may have written it.
local function split(text)
  local at, rest = string.match(text, '^(%S+) (.*)$')
  at = tonumber(at)
  return at and at == at and at or 0, rest or ''
end

local is = redis.call('TYPE', key).ok
if is ~= 'hash' then redis.call('UNLINK', key) end
if is ~= 'hash' and ARGV[3] == '' then return {0} end -- nobody has ever had any
local is_new = redis.call('HEXISTS', key, 'd:' .. ARGV[2]) == 0
if is_new then redis.call('HSET', key, 'd:' .. ARGV[2], stamp(now) .. ' ' .. ARGV[3]) end
redis.call('HSET', key, 'n:' .. ARGV[1], stamp(now) .. ' ' .. ARGV[2])
redis.call('EXPIRE', key, 365 * 86400) -- of queues that are gone, nobody asks again

local fields, is_living, known = redis.call('HGETALL', key), {}, {}
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^([nd]):(.*)$')
  local at, rest = split(fields[i + 1])
  if kind == 'n' then
    if math.abs(now - at * 1000000) < ARGV[4] * 1000000 then is_living[rest] = true else redis.call('HDEL', key, fields[i]) end
  elseif kind == 'd' then
    known[#known + 1] = {name, at, rest}
  end
end
-- What nobody has any more is known for as long as there are not too many.
table.sort(known, function(a, b) return a[2] > b[2] end)
local reply = {is_new and 1 or 0}
for i, row in ipairs(known) do
  if is_living[row[1]] then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = row[1], stamp(row[2] * 1000000), row[3]
  elseif i > 50 then
    redis.call('HDEL', key, 'd:' .. row[1])
  end
end
return reply
