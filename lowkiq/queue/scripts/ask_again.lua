-- ask_again: ask once more for what ids of a shard wait for (waiting.lua), some at a time. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 layout, 4 where to go on, '0' at first, 5 seconds after which to ask again, 6 most asked for
-- returns where to go on; '0': that was all   errors: FENCED, LAYOUT, NEWER, RESHARDED, MOVING
--@ shard owner now
--@ moving whole
--@ waiting ask forget open
local P = KEYS[1]
local refusal = fence(P, ARGV[1], ARGV[2]) or check_whole(P, ARGV[3])
if refusal then return refusal end

local STEP = 50 -- ids that are looked at, about
local now, left = now_us(), tonumber(ARGV[6])
local before = '(' .. string.format('%.0f', now - ARGV[5] * 1000000)
local page = redis.call('HSCAN', P .. 'waits', ARGV[4], 'COUNT', STEP)
local _, count = parse_layout(ARGV[3])
for i = 1, #page[2], 2 do
  local id, token = page[2][i], string.match(page[2][i + 1], '^%d+') or ''
  if redis.call('HEXISTS', P .. 'payloads', id) == 0 then forget_waits(P, id) end -- an older Lowkiq has deleted it
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', P .. 'waits:' .. id, '-inf', before, 'LIMIT', 0, left)) do
    redis.call('ZADD', P .. 'waits:' .. id, string.format('%.0f', now), name)
    if name ~= OPEN then ask_for(P, id, token, count, name) end
    left = left - 1
  end
  if left <= 0 then return ARGV[4] end
end
return page[1]
