-- ask_again: ask once more for what ids of a shard wait for (waiting.lua), some at a time, those that come first. The longer an id
-- has waited the less often it asks: a million names that were asked for each minute would keep Redis busy for a fifth of
-- it. Repeating it changes nothing but when they ask next.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 layout, 4 where to go on, '0' at first, 5 seconds by which it may be too early, 6 most asked for
-- returns where to go on; '0': that was all   errors: FENCED, LAYOUT, NEWER, RESHARDED, MOVING
--@ shard owner now stamp layout
--@ moving whole
--@ waiting first ask forget
local P = KEYS[1]
local refusal = fence(P, ARGV[1], ARGV[2]) or check_whole(P, ARGV[3])
if refusal then return refusal end

local LONGEST = 3600 * 1000000 -- microseconds between two times that an id asks
local now, left = now_us(), tonumber(ARGV[6])
local _, count = parse_layout(ARGV[3])

local function next_time(id)
  local since = (redis.call('ZSCORE', P .. 'held', id) or 0) * 1000000
  return now + math.min(math.max((now - since) / 2, ASKS_AFTER), LONGEST)
end

local function first_due()
  local by = '(' .. stamp(now + ARGV[5] * 1000000)
  return redis.call('ZRANGEBYSCORE', P .. 'asks', '-inf', by, 'LIMIT', 0, 1)[1]
end

-- Where it went on to is the number of a question, and the id.
local after, id = string.match(ARGV[4], '^(%S+) (.*)$')
while left > 0 do
  if not id then after, id = '-inf', first_due() end
  if not id then return '0' end
  local names = redis.call('ZRANGEBYSCORE', P .. 'waits:' .. id, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, left)
  for i = 1, #names, 2 do ask_for(P, id, names[i + 1], count, names[i]) end
  if #names / 2 < left then
    local is_there = redis.call('HEXISTS', P .. 'payloads', id) == 1 or forget_waits(P, id) -- anybody may write to Redis
    if is_there and redis.call('HEXISTS', P .. 'waits', id) == 1 then
      redis.call('ZADD', P .. 'asks', stamp(next_time(id)), id)
    else
      redis.call('ZREM', P .. 'asks', id)
    end
    id, left = nil, left - 1
  else
    after = names[#names]
  end
  left = left - #names / 2
end
return id and after .. ' ' .. id or '1'
