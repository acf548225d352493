--! allow-oom
-- renew_away: keep claims that are away (away.lua), or that a release which did not arrive was to send away. One whose time
-- has run out is kept too, if nobody has taken it back.
-- KEYS  the prefix of each claim's shard (on Cluster: one)
-- ARGV  1 node, 2 ttl in seconds, then of each key epoch and number of the claim
-- returns for each key 0 (it is over, or lost) or 1 (kept; or on its way to where it moves), 4 more if jobs of the shard are
--       cancelled; or, if the shard was moved, to which layout
--@ shard count now oom
--@ away held keep
local kept = {}
for i = 1, SHARDS do
  local P = KEYS[i]
  local refusal, claim = held_claim(P, ARGV[1], ARGV[i * 2 + 1], ARGV[i * 2 + 2])
  local why, layout = string.match(refusal and refusal.err or '', '^(%u+) (%S+)')
  kept[i] = (claim or why == 'MOVING') and 1 or why == 'RESHARDED' and layout or 0
  if claim and claim.lease then
    free_first(P)
    claim.lease.ends, claim.lease.ttl = now_us() + ARGV[2] * 1000000, ARGV[2]
    keep_away(P, claim.name, claim.lease)
  end
  if claim and redis.call('EXISTS', P .. 'cancels') == 1 then kept[i] = kept[i] + 4 end
end
return kept
