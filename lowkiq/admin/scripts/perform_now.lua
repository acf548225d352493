--! once
-- perform_now: make queued jobs due, in the order of their ids here. Those that are due already keep their place, also
-- parked ones; and blocked ones stay blocked (claimed.lua). No throttle holds any of the others back (fewer.lua).
-- Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were moved   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock first_place note_time
--@ moving whole
--@ payloads get
--@ claimed never
--@ lanes hint
--@ bell ring
local P = KEYS[1]
local refusal, _, last_score, seen = check_whole(P, ARGV[1])
if refusal then return refusal end

local now = shard_now(P, last_score)
local first, moved = first_place(now, tonumber(last_score)), 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local perform_in = redis.call('ZSCORE', P .. 'due', id)
  local is_later = perform_in and tonumber(perform_in) < tonumber(NEVER) and tonumber(perform_in) > now / 1000000
  if perform_in and tonumber(perform_in) < tonumber(NEVER) then redis.call('ZREM', P .. 'spaced', id) end
  if is_later then
    -- A compact record is of a job that is due, unless the clock was set back; then it is written in full.
    redis.call('HSET', P .. 'payloads', id, payloads_get(P .. 'payloads', id))
    redis.call('ZADD', P .. 'due', stamp(first + moved), id)
    hint(P, id, stamp(first + moved))
    moved = moved + 1
  end
end
if moved > 0 then
  note_time(P, first + moved - 1, tonumber(last_score), seen)
  ring(P, now, now)
end
return moved
