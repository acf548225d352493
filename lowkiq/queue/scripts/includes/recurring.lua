-- Jobs that recur. An entry is in the shard of its id, whose owner fires it: there is no other clock, and no leader.
-- `recurring` has entries by id: what they are, which scripts do not read (recurring.py). `recurs` has when each fires next,
-- but for those that are paused, and `recur_last` when it was fired last.

--- next
-- When the next entry fires, '' if none does.
local function next_firing(P)
  return redis.call('ZRANGE', P .. 'recurs', 0, 0, 'WITHSCORES')[2] or ''
end
