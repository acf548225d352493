-- Due ids that may not start now are passed by: those that run, or are held, are parked, and those that are throttled put off
-- until they may. None of them is met again before that is over.

--- by
--@ parking park
--@ holding held
--@ fewer spaced
local WIDE = 250 -- ids that are looked at together, at least, once one of those that a claim wants was passed by
local MOST = 500 -- that a claim looks at in all; others are for the next one

-- Passes by those of these ids that may not start. `why` has what may keep them: ids that run, whether any is held, and whether
-- any is throttled. Returns how many are left.
local function pass_by(P, ids, count, now, clock, why)
  local stopped, left = why.has_held and held_of(P, ids, count) or {}, {}
  for i = 1, count do
    local id = ids[i]
    if why.running[id] then stopped[id] = why.running[id] end
    if not stopped[id] then left[#left + 1] = id end
  end
  if #left < count then park(P, ids, count, stopped) end
  return #left - (why.has_spaced and #left > 0 and put_off(P, left, #left, now, clock) or 0)
end

-- Goes on from what `find` has found until there are enough that may start, or it has looked at so many: else each claim of
-- one slow job would pass by one, and a free id wait for as many round trips. Returns what `find` does.
local function find_free(P, find, now, limit, clock, why, found)
  local looked = 0
  while found[2] > 0 do
    local ids, count = found[1], found[2]
    local left = pass_by(P, ids, count, now, clock, why)
    looked = looked + count
    if left == count and count <= limit then break end
    if left >= limit or left == count or looked >= MOST then return find(P, now, math.min(left, limit), ids) end
    found = {find(P, now, math.max(limit, WIDE))}
  end
  return unpack(found, 1, 5)
end
