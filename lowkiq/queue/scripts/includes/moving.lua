-- A queue gets another number of shards by a move of all that its shards hold into new ones (resharding.py). What an old
-- shard of a lease of its own, the mover's, holds goes over in chunks: read, adopted by the new shards, and dropped.
--
-- `feeders` of a new shard has the old ones of which something may still come, each with the epoch of its mover, 0 before it
-- has begun. While there are any, nothing of the new shard is claimed, so no payload runs before an older one that still
-- moves. `fed` has those of which nothing comes any more, and the epoch of their last mover: what an earlier one sends
-- arrives too late. Once all has come, `whole` in `meta` says so for good, in place of either.
--
-- A shard that is being moved has the layout it moves to, and ":moved" behind it, in the place of its own: whoever comes
-- with the old one is sent on (RESHARDED). Of a shard that is empty that is left, with `closed`,
-- for good: a producer may sleep through any time.

--- mover
--@ shard owner
-- A refusal, unless the mover of that epoch owns the old shard, and has marked it; with `step`, unless its last one is known
-- that was done in the new shards. Redis gets the new shards' part of a step and that note (note_step.lua) in one go, so where
-- the note is, so is what was done: a primary that has lost the one in a failover does not know the other.
local function fence_mover(P, node, epoch, step)
  local refusal = fence(P, node, epoch)
  if refusal then return refusal end
  if string.sub(redis.call('HGET', P .. 'meta', 'layout') or '', -6) ~= ':moved' then
    return refuse('INVALID', 'the shard is not marked as moved')
  end
  if step and redis.call('HGET', P .. 'owner', 'step') ~= epoch .. ':' .. step then
    return refuse('FENCED', 'what the new shards had is lost: it is to be begun anew')
  end
end

--- holds
--@ sides move
-- Whether there is anything in a shard that would have to be moved out of it.
local function holds_anything(P)
  local names = {HINDERS.emptiness}
  for _, side in ipairs(SIDES) do names[#names + 1] = P .. side[1] end
  return redis.call('EXISTS', unpack(names)) > 0
end

--- begun
--@ moving holds
-- A failover may lose a reshard whose mover, or the shard's owner, goes on for a moment, and leaves its layout here. Where the
-- next one is to another number that is in its way: forgets it, if nothing has come, for a mover of a later epoch.
local function forget_lost_feeders(P, layout, epoch)
  local known, whole = unpack(redis.call('HMGET', P .. 'meta', 'layout', 'whole'))
  if not known or known == layout or whole or string.sub(known, -6) == ':moved' or holds_anything(P) then return end
  local feeders = redis.call('HGETALL', P .. 'feeders')
  for i = 2, #feeders, 2 do
    if tonumber(feeders[i]) >= epoch then return end
  end
  redis.call('UNLINK', P .. 'feeders', P .. 'fed')
  redis.call('HDEL', P .. 'meta', 'layout')
end

--- whole
--@ shard refuse layout
-- What is absent in a new shard may be on its way, or be of another owner's run, as long as something still comes: whoever
-- decides by it, or acts on an id, is refused until then. Returns what check_layout does.
local function check_whole(P, layout)
  local refusal, known, last_score, seen, pushed, watched = check_layout(P, layout, true)
  if not refusal and redis.call('EXISTS', P .. 'feeders') == 1 then
    refusal = refuse('MOVING', string.match(P, '{(.*)}'))
  end
  return refusal, known, last_score, seen, pushed, watched
end

--- feeder
--@ shard refuse layout
-- A refusal, unless that mover of an old shard is the one that this new shard knows.
local function check_feeder(P, layout, old, epoch)
  local refusal = check_layout(P, layout, true)
  if refusal then return refusal end
  local known = redis.call('HGET', P .. 'feeders', old)
  if known ~= epoch then return refuse('FENCED', 'fed by a mover of epoch ' .. (known or 'none')) end
end
