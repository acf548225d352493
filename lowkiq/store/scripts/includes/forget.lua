-- Forgets the failures and deaths of an id that leaves the queue, so that a job of that id pushed later starts anew. While
-- the id is also in the claim they are those of the job in hand, and stay (I7).
local function forget_queued(P, id)
  if redis.call('HEXISTS', P .. 'claim', id) == 1 then return end
  redis.call('HDEL', P .. 'errors', id)
  redis.call('HDEL', P .. 'crashes', id)
end
