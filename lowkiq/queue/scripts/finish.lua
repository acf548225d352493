--! allow-oom
-- finish: end a claim of which every job is done, and open the next one (push.lua), where nothing is queued: what settle
-- and claim do of a job that came alone, in a third of their commands. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the claim, each job of which has one payload, 4 number of the next
-- returns jobs that are done; nil, with nothing changed, where settle and claim are needed: something else is in the
--       shard, or the claim is not its last, or not the caller's
local P = KEYS[1]
local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
if owner[1] ~= ARGV[1] or owner[2] ~= ARGV[2] or owner[3] ~= ARGV[3] then return false end
-- With an empty queue nothing waits for a retry, nor for its own run, and there is nothing that the clock could have been
-- set back for; and a layout changes with the owner.
local has_more = redis.call('EXISTS', HINDERS.settle, HINDERS.finish) > 0
if has_more then return false end
local acked = redis.call('LLEN', P .. 'claim') / 2
-- The first write is one that Redis does not refuse when memory is full.
redis.call('UNLINK', P .. 'claim')
if acked > 0 then redis.call('HINCRBY', P .. 'meta', 'processed', acked) end
redis.call('HSET', P .. 'owner', 'claim', ARGV[4], 'waiting', 'inf', 'open', ARGV[2] .. ' ' .. ARGV[4])
return acked
