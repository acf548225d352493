--! allow-oom
-- abandon: say that the owner leaves while user code still runs, or who has a claim that is away (away.lua). The lease stays
-- until its end; the next owner then restores the claim without counting a crash.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 the number of a claim that is away, '' of the shard
-- returns 1   errors: FENCED
--@ shard owner oom
--@ away held keep
if ARGV[3] ~= '' then
  local refusal, claim = held_claim(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
  if refusal then return refusal end
  if claim and claim.lease then
    free_first(KEYS[1])
    claim.lease.left = '1'
    keep_away(KEYS[1], claim.name, claim.lease)
  end
  return 1
end
local refusal = fence(KEYS[1], ARGV[1], ARGV[2])
if refusal then return refusal end
free_first(KEYS[1])
redis.call('HSET', KEYS[1] .. 'owner', 'abandoned', '1')
return 1
