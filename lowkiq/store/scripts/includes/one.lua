--@ hand_over
--@ fresh
-- Pushes one job with the default score and due time, now: what most pushes are. Into the owner's open claim or, if
-- nothing is queued for its id, into the queue; else returns false, and has changed nothing.
local function push_one(P, owner, id, payload, now, pushed)
  if not hand_over(P, owner, id, payload, now) then
    if redis.call('ZADD', P .. 'due', 'NX', stamp(now), id) == 0 then return false end
    redis.call('HSET', P .. 'payloads', id, fresh(now, payload))
    ring(P, now, now, owner)
  end
  redis.call('HSET', P .. 'meta', 'last_score', string.format('%.0f', now), 'pushed', string.format('%.0f', pushed + 1))
  return true
end
