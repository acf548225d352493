--@ clock
--@ doorbell
-- perform_now: make queued jobs due. Those that are due already keep their place. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  ids
-- returns how many were moved
local P = KEYS[1]
local now = now_us()
local moved = 0
for _, id in ipairs(ARGV) do
  local perform_in = redis.call('ZSCORE', P .. 'due', id)
  if perform_in and tonumber(perform_in) > now / 1000000 then
    redis.call('ZADD', P .. 'due', stamp(now), id)
    moved = moved + 1
  end
end
if moved > 0 then ring(P, now, now) end
return moved
