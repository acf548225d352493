--@ doorbell
-- A claim that found nothing stays open: `open` is its epoch and number, until another one is made or the lease ends. A
-- push may put its job right into it, in the owner's name (I1), and rings with all that the claim would have returned:
-- the job is on its way after half the commands, and without the thread's having to ask. Only while that thread listens,
-- and to a lease that lasts: else the job belongs in the queue, where it merges and others find it.
local HANDED = 16384 -- bytes of a payload; a longer one would cost more by being copied than it saves

-- A job that is due at its score: now. Returns whether it was handed over.
local function hand_over(P, owner, id, payload, now)
  local waiting, bell, open = owner[1], owner[3], owner[4]
  if not (bell and open and says_earlier(owner, now)) or #payload > HANDED then return false end
  if (tonumber(owner[5]) or 0) <= now / 1000000 then return false end
  -- An owner that waits for nothing has an empty queue.
  if waiting ~= 'inf' and redis.call('ZSCORE', P .. 'due', id) then return false end
  if not take_idle(bell) then return false end
  local at = stamp(now)
  local record = at .. ':-1:' .. at .. ':' .. payload
  redis.call('RPUSH', P .. 'claim', id, record)
  redis.call('HDEL', P .. 'owner', 'waiting', 'open')
  local next_due = waiting == 'inf' and '' or waiting
  tell(bell, table.concat({P, '0', '1', open, at, next_due, #id, id .. record}, ' '))
  return true
end
