--! allow-oom
-- release: give back a claim whose jobs have not run, or with 'lease' also the shard. Crashes are not counted.
-- Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the claim (and of any that came before), 4 'claim' or 'lease'
-- returns {restored, next due or '', now, the node that stands by for the shard, and was rung, or ''}   errors: FENCED
--@ shard clock owner oom
--@ claimed restore
--@ bell ring_node oldest_due
local P = KEYS[1]
local refusal, last_claim = fence(P, ARGV[1], ARGV[2])
if refusal then return refusal end

local now = shard_now(P)
free_first(P)
local restored = 0
-- A later claim is not touched: this call is a late repeat. An earlier number is raised, so that a claim still on its
-- way on a dead connection is refused as STALE when it arrives.
if last_claim <= tonumber(ARGV[3]) then
  restored = restore_claim(P, now, {})
  redis.call('HSET', P .. 'owner', 'claim', ARGV[3])
  redis.call('HDEL', P .. 'owner', 'open', 'alone')
  if ARGV[4] == 'lease' then
    local wanted = redis.call('HGET', P .. 'owner', 'wanted')
    redis.call('HDEL', P .. 'owner', 'node', 'until', 'waiting', 'abandoned', 'claim', 'last_due', 'wanted', 'bell', 'ttl')
    if wanted then ring_node(P, wanted, 'foster ' .. P) end
    return {restored, '', stamp(now), wanted or ''}
  end
end
return {restored, oldest_due(P, now), stamp(now), ''}
