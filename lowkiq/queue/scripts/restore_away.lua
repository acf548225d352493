--! allow-oom
-- restore_away: return to the queue what claims that are away hold, whose lease has run out, or whose node is dead (away.lua).
-- Deaths are counted as in acquire. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 max_crashes, then of each node known to be dead its name, and what it ran of this shard
--       (deaths.lua)
-- returns {restored, buried, claims that are away still, next due or '', now}   errors: FENCED
--@ shard clock owner oom
--@ claimed in_hand
--@ away restore
--@ bell oldest_due
local P = KEYS[1]
local refusal, last_claim = fence(P, ARGV[1], ARGV[2])
if refusal then return refusal end
local now, dead = shard_now(P), {}
for i = 4, #ARGV, 2 do dead[ARGV[i]] = ARGV[i + 1] end
free_first(P)
local restored, buried, left = restore_away(P, claims_in_hand(P, last_claim), now_us(), now, dead, tonumber(ARGV[3]))
return {restored, buried, left, oldest_due(P, now), stamp(now)}
