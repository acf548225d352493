-- `cancels` has claimed ids that somebody has cancelled: "epoch number" of the claim that is meant.
--
-- A cancelled run that is not done does not come back, whatever has ended it: its payloads are dropped. What was pushed
-- since waits behind it, and is due then. A mark counts for the claim that it names only: one that is left
-- must never touch a later run.

--- mark
--@ claimed forget
--@ parking unpark
local has_cancels, epoch

local function are_any_cancelled(P)
  if has_cancels == nil then
    has_cancels = redis.call('EXISTS', P .. 'cancels') == 1
    epoch = has_cancels and redis.call('HGET', P .. 'owner', 'epoch') or '' -- of the owner's claims
  end
  return has_cancels
end

local function is_cancelled(P, claim, id)
  return are_any_cancelled(P) and redis.call('HGET', P .. 'cancels', id) == (claim.epoch or epoch) .. ' ' .. claim.number
end

local function drop_claimed(P, now, id, held)
  if held == '*' then redis.call('UNLINK', P .. 'claim:' .. id) end
  unpark(P, now, {id})
  forget(P, id)
end

-- The runs of these ids are over. It comes last: what can't be written before it leaves them cancelled.
local function unmark(P, ids)
  if #ids > 0 and are_any_cancelled(P) then redis.call('HDEL', P .. 'cancels', unpack(ids)) end
end
