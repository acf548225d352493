--! allow-oom
-- rest: say that of a paused shard nothing starts any more (pausing.lua), and return to the queue the claims that were
-- asked for and are not in hand: what they bring is not started. It says nothing of claims that were asked for later, as
-- one that arrives late, when the shard is paused once more. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the last claim that was asked for, 4 numbers of the claims in hand, each with a space
--       before and after it; '' for none
-- returns 1, or 0 if it is not paused, or there is a later claim   errors: FENCED
--@ shard clock owner oom
--@ claimed in_hand
--@ endings restore
local P = KEYS[1]
local refusal, last_claim = fence(P, ARGV[1], ARGV[2])
if refusal then return refusal end
if redis.call('EXISTS', P .. 'paused') == 0 then return 0 end
local claims = claims_in_hand(P, last_claim)
for _, claim in ipairs(claims) do
  if not claim.epoch and tonumber(claim.number) > tonumber(ARGV[3]) then return 0 end
end

free_first(P)
local now = shard_now(P)
for _, claim in ipairs(claims) do
  local stays = claim.epoch or string.find(ARGV[4], ' ' .. claim.number .. ' ', 1, true) -- nothing of what is away starts
  if not stays then restore_claim(P, now, claim, {}) end
end
redis.call('HSET', P .. 'owner', 'rests', ARGV[2])
return 1
