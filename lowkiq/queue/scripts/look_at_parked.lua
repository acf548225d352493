-- look_at_parked: have those of some parked ids be due that nothing keeps any more (parking.lua), as somebody has removed a claim,
-- say. Those that are held stay, and so do those that run. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 layout, 4 where to go on, '0' at first, 5 ids that are looked at, about
-- returns where to go on; '0': that was all   errors: FENCED, LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock owner
--@ moving whole
--@ claimed running
--@ parking unpark
--@ bell ring
local P = KEYS[1]
local refusal, last_claim = fence(P, ARGV[1], ARGV[2])
refusal = refusal or check_whole(P, ARGV[3])
if refusal then return refusal end

local page = redis.call('HSCAN', P .. 'behind', ARGV[4], 'COUNT', ARGV[5])
local running, idle = ids_of(claims_in_hand(P, last_claim)), {}
for i = 1, #page[2], 2 do
  if not running[page[2][i]] then idle[#idle + 1] = page[2][i] end
end
local now = shard_now(P)
local earliest = #idle > 0 and unpark(P, now, idle) or math.huge
if earliest < math.huge then ring(P, earliest, now) end
return page[1]
