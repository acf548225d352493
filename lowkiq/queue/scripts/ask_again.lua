-- ask_again: ask once more for what ids of a shard wait for (waiting.lua), some at a time. The longer an id has waited, the less
-- often it asks: a million names that are asked for each minute would keep Redis busy for a fifth of it. Repeating it
-- changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 layout, 4 where to go on, '0' at first, 5 seconds after which to ask again, at least, 6 most asked for
-- returns where to go on; '0': that was all   errors: FENCED, LAYOUT, NEWER, RESHARDED, MOVING
--@ shard owner now layout
--@ moving whole
--@ waiting ask forget open
local P = KEYS[1]
local refusal = fence(P, ARGV[1], ARGV[2]) or check_whole(P, ARGV[3])
if refusal then return refusal end

local STEP = 50 -- ids that are looked at, about
local YOUNG, LONGEST = 180 * 1000000, 3600 * 1000000 -- microseconds: of a wait that asks as often as it may; between two asks
local now, left = now_us(), tonumber(ARGV[6])

-- An id asks again for what was asked for before that. The token tells since when it waits.
local function asked_before(token)
  local pause = ARGV[5] * 1000000 * math.max(1, (now - (tonumber(token) or now)) / YOUNG)
  return '(' .. string.format('%.0f', now - math.min(pause, LONGEST))
end

local cursor = string.match(ARGV[4], '^%d+')
local page = redis.call('HSCAN', P .. 'waits', cursor, 'COUNT', STEP)
local _, count = parse_layout(ARGV[3])
for i = 1, #page[2], 2 do
  local id, token = page[2][i], string.match(page[2][i + 1], '^%d+') or ''
  if redis.call('HEXISTS', P .. 'payloads', id) == 0 then forget_waits(P, id) end -- somebody has deleted it
  local names = redis.call('ZRANGEBYSCORE', P .. 'waits:' .. id, '-inf', asked_before(token), 'LIMIT', 0, left)
  for _, name in ipairs(names) do
    redis.call('ZADD', P .. 'waits:' .. id, string.format('%.0f', now), name)
    if name ~= OPEN then ask_for(P, id, token, count, name) end
    left = left - 1
  end
  if left <= 0 then return cursor .. '+' end -- here once more, where the rest is
end
return page[1]
