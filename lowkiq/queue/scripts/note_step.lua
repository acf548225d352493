--! allow-oom
-- note_step: note in an old shard that the new ones have what its mover has just sent them (moving.lua). Repeating it changes
-- nothing.
-- KEYS  1 prefix of the old shard
-- ARGV  1 the mover, 2 epoch, 3 number of the step, from 1: what it has sent may be of use only with that of those before
-- returns 1   errors: FENCED (also where they have lost the step before), INVALID (it is not marked)
--@ moving mover
local P = KEYS[1]
local step = ARGV[2] .. ':' .. ARGV[3]
local is_known = redis.call('HGET', P .. 'owner', 'step') == step
local refusal = fence_mover(P, ARGV[1], ARGV[2], not is_known and ARGV[3] ~= '1' and string.format('%d', ARGV[3] - 1))
if refusal then return refusal end
redis.call('HSET', P .. 'owner', 'step', step)
return 1
