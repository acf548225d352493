--! allow-oom
-- release: give back a claim whose jobs have not run; or with 'lease' the shard and all its claims, if none was made
-- after this one, but for those that run: they are away from here on (away.lua). Crashes are not counted. Repeating it
-- changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the claim, 4 'claim' or 'lease'; with this 5 the time in seconds of the leases of
--       claims that run, and then their numbers
-- returns {restored, next due or '', now, the node that stands by for the shard, and was rung, or ''}   errors: FENCED
--@ shard clock owner oom
--@ claimed find in_hand set_aside
--@ endings restore
--@ away leave
--@ bell ring_node oldest_due
local P = KEYS[1]
local refusal, last_claim = fence(P, ARGV[1], ARGV[2])
if refusal then return refusal end

local now = shard_now(P)
free_first(P)
local restored, number = 0, tonumber(ARGV[3])

if ARGV[4] == 'lease' and last_claim <= number then
  local run = {}
  for i = 6, #ARGV do run[ARGV[i]] = true end
  for _, claim in ipairs(claims_in_hand(P, last_claim)) do
    if claim.epoch then
      -- That of an earlier hold stays away.
    elseif run[claim.number] then
      send_away(P, claim, ARGV[1], ARGV[2], now_us() + ARGV[5] * 1000000, ARGV[5])
    else
      restored = restored + restore_claim(P, now, claim, {})
    end
  end
  local wanted = redis.call('HGET', P .. 'owner', 'wanted')
  redis.call('HDEL', P .. 'owner', 'node', 'until', 'waiting', 'abandoned', 'claim', 'last_due', 'wanted', 'bell', 'ttl',
    'open', 'alone', 'rests')
  if wanted then ring_node(P, wanted, 'foster ' .. P) end
  return {restored, '', stamp(now), wanted or ''}
end

-- With a later claim in hand 'lease' is a late repeat. An earlier number is raised, so that a claim still on its way on a
-- dead connection is refused as STALE when it arrives; the last one stays in hand.
local claim = ARGV[4] == 'claim' and find_claim(P, ARGV[3], last_claim)
if claim then
  restored = restore_claim(P, now, claim, {})
  redis.call('HDEL', P .. 'owner', 'open')
  local alone = redis.call('HGET', P .. 'owner', 'alone') or ''
  if string.match(alone, '^%d+') == ARGV[3] then redis.call('HDEL', P .. 'owner', 'alone') end
elseif ARGV[4] == 'claim' and last_claim < number then
  redis.call('HDEL', P .. 'owner', 'open')
  set_aside(P, last_claim, ARGV[3])
end
return {restored, oldest_due(P, now), stamp(now), ''}
