-- fire: push what entries of a shard have (includes/recurring.lua), and note when they fire next. Repeating it changes nothing:
-- one whose time is not the expected one is left alone, as it was fired, or changed.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 layout, then of each entry: id, when it was to fire, when it fires next ('' if never), how often it
--       is pushed now, then for each time: payload, score
-- returns {now, when the next one fires or '', how many were fired}   errors: FENCED, LAYOUT, NEWER, RESHARDED, MOVING
--@ shard owner now stamp
--@ moving whole
--@ pushing into
--@ recurring next
local P = KEYS[1]
local refusal = fence(P, ARGV[1], ARGV[2]) or check_whole(P, ARGV[3])
if refusal then return refusal end

local now, jobs, fired, at = now_us(), {}, {}, 4
while at <= #ARGV do
  local id, expected, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  local known = tonumber(redis.call('ZSCORE', P .. 'recurs', id) or '')
  if known and known == expected and expected * 1000000 <= now then
    fired[#fired + 1] = {id, ARGV[at + 1], ARGV[at + 2]}
    for word = at + 4, at + 2 + 2 * count, 2 do
      local first = #jobs
      jobs[first + 1], jobs[first + 2], jobs[first + 3], jobs[first + 4] = id, ARGV[word], ARGV[word + 1], ''
    end
  end
  at = at + 4 + 2 * count
end
-- Jobs come first: it is the push that is refused when memory is full.
if #jobs > 0 then push_into(P, ARGV[3], now, jobs, 4, 1, #jobs / 4) end
for _, entry in ipairs(fired) do
  local id, expected, following = unpack(entry)
  if following == '' then redis.call('ZREM', P .. 'recurs', id) else redis.call('ZADD', P .. 'recurs', following, id) end
  redis.call('HSET', P .. 'recur_last', id, expected)
end
return {stamp(now), next_firing(P), #fired}
