-- fire: push what entries of a shard have (includes/recurring.lua), and note when they fire next. Repeating it changes nothing:
-- one whose time is not the expected one is left alone, as it was fired, or changed. One that is not due, and of which nothing is
-- pushed, is only given another time to come: by its rule it was too far ahead.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 layout, then of each entry: id, when it was to fire, when it fires next ('' if never), how often it
--       is pushed now, tenant (lanes.lua), how it runs less often (fewer.lua), then for each time: payload, score
-- returns {now, when the next one fires or '', how many were fired}   errors: FENCED, LAYOUT, NEWER, RESHARDED, MOVING
--@ shard owner now stamp
--@ moving whole
--@ pushing into
--@ recurring next
local P, WORDS = KEYS[1], 7 -- of a job, as push.lua has them
local refusal = fence(P, ARGV[1], ARGV[2]) or check_whole(P, ARGV[3])
if refusal then return refusal end

local now, jobs, fired, at = now_us(), {}, {}, 4
while at <= #ARGV do
  local id, expected, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  local tenant, fewer = ARGV[at + 4], ARGV[at + 5]
  local known = tonumber(redis.call('ZSCORE', P .. 'recurs', id) or '')
  local is_due = expected * 1000000 <= now
  local is_moved = not is_due and count == 0 and (tonumber(ARGV[at + 2]) or 0) * 1000000 > now
  if known and known == expected and (is_due or is_moved) then
    fired[#fired + 1] = {id, is_due and ARGV[at + 1], ARGV[at + 2]}
    for word = at + 6, at + 4 + 2 * count, 2 do
      for _, one in ipairs({id, ARGV[word], ARGV[word + 1], '', '', tenant, fewer}) do jobs[#jobs + 1] = one end
    end
  end
  at = at + 6 + 2 * count
end
-- Jobs come first: it is the push that is refused when memory is full.
if #jobs > 0 then push_into(P, ARGV[3], now, jobs, WORDS, 1, #jobs / WORDS) end
for _, entry in ipairs(fired) do
  local id, expected, following = unpack(entry)
  if following == '' then redis.call('ZREM', P .. 'recurs', id) else redis.call('ZADD', P .. 'recurs', following, id) end
  if expected then redis.call('HSET', P .. 'recur_last', id, expected) end
end
return {stamp(now), next_firing(P), #fired}
