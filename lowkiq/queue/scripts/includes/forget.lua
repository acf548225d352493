--@ claim_list
-- Forgets the failures and deaths of an id that leaves the queue, so that a job of that id pushed later starts anew. While
-- the id is also in the claim they are those of the job in hand, and stay (I7).
local in_hand

local function forget_queued(P, id)
  in_hand = in_hand or select(2, read_claim(P))
  if in_hand[id] then return end
  redis.call('HDEL', P .. 'errors', id)
  redis.call('HDEL', P .. 'crashes', id)
end
