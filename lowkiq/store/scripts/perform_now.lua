--@ clock
--@ layout
--@ doorbell
-- perform_now: make queued jobs due. Those that are due already keep their place. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were moved   errors: LAYOUT, NEWER
local P = KEYS[1]
local refusal = check_layout(P, ARGV[1])
if refusal then return refusal end

local now = now_us()
local moved = 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local perform_in = redis.call('ZSCORE', P .. 'due', id)
  if perform_in and tonumber(perform_in) > now / 1000000 then
    redis.call('ZADD', P .. 'due', stamp(now), id)
    moved = moved + 1
  end
end
if moved > 0 then ring(P, now, now) end
return moved
