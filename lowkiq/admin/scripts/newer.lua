-- newer: which of these dead jobs, revived now, would run behind newer payloads of their ids: of such that run just now, or
-- have gone on since it died, as far as is known (endings.lua). Those that are still queued are no such: they merge.
-- KEYS  1 shard prefix
-- ARGV  ids
-- returns the ids
--@ payloads lowest
--@ claimed in_hand read parse
local P = KEYS[1]
local dead, running = {}, {}
for _, id in ipairs(ARGV) do dead[id] = lowest_score(P .. 'morgue:payloads', id) end
for _, claim in ipairs(claims_in_hand(P, redis.call('HGET', P .. 'owner', 'claim'))) do
  local ids, records = read_claim(claim)
  for _, id in ipairs(ids) do
    local _, _, held = parse_claimed(P, claim, records[id])
    running[id] = held == '*' and redis.call('ZRANGE', P .. 'claim:' .. id, -1, -1, 'WITHSCORES')[2] or (split(held))
  end
end

local function is_behind(id)
  if running[id] and tonumber(running[id]) > tonumber(dead[id]) then return true end
  local newer = redis.call('HGET', P .. 'morgue:newer', id)
  if not newer or tonumber(newer) <= tonumber(dead[id]) then return false end
  local queued = lowest_score(P .. 'payloads', id)
  return not queued or tonumber(queued) > tonumber(newer)
end

local behind = {}
for _, id in ipairs(ARGV) do
  if dead[id] and is_behind(id) then behind[#behind + 1] = id end
end
return behind
