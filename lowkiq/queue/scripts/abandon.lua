--! allow-oom
-- abandon: say that the owner leaves while user code still runs. The lease stays until its end; the next owner then
-- restores the claim without counting a crash.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch
-- returns 1   errors: FENCED
--@ shard owner oom
local refusal = fence(KEYS[1], ARGV[1], ARGV[2])
if refusal then return refusal end
free_first(KEYS[1])
redis.call('HSET', KEYS[1] .. 'owner', 'abandoned', '1')
return 1
