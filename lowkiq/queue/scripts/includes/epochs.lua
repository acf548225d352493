-- An epoch follows the clock, so that it rises (I2) also where Redis has lost its last writes: an owner of whom the new primary
-- knows nothing had an epoch of an earlier time. Where epochs are ahead of the clock, `lead` in `meta` says by how much, and
-- since when, both in microseconds: they go on with the clock from there, by half of what it does, until it has caught up. So
-- they always rise with time, and it is not for long that a Redis that has lost everything would begin below them.

--- next
--@ shard set_back
-- When the clock was set back nobody knows how far epochs are ahead of it. They go on from the last one, by so much of the
-- clock that those of two moments differ.
local STEPS = 10000 -- microseconds

-- The epoch that follows this one, as text; and the lead to be noted, nil if that is as it was.
local function next_epoch(P, epoch, now)
  local noted, since = string.match(redis.call('HGET', P .. 'meta', 'lead') or '', '^(%d+) (%d+)$')
  local lead = noted and math.max(0, noted - math.max(0, math.floor((now - since) / 2))) or 0
  local is_new = false
  if epoch - (now + lead) >= SET_BACK then
    lead, is_new = epoch + 1 + math.floor(now / STEPS) - now, true
  end
  return string.format('%.0f', math.max(epoch + 1, now + lead)), is_new and string.format('%.0f %.0f', lead, now) or nil
end
