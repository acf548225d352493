--! allow-oom
--! once
-- cancel: delete what is queued of jobs; and mark those that run, so that none of them comes back unless it is done
-- (cancelling.lua), and ring who runs them, which asks them to stop. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were queued or run   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard oom
--@ moving whole
--@ bell ring_node
--@ endings drop
--@ away lease
--@ notes note
local P = KEYS[1]
local refusal = check_whole(P, ARGV[1])
if refusal then return refusal end

local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch')
local cancelled, to_ring = 0, {}
free_first(P)
for i = 2, #ARGV do
  local id = ARGV[i]
  local claim = claim_of(P, id)
  local is_queued = redis.call('HEXISTS', P .. 'payloads', id) == 1
  if claim then
    redis.call('HSET', P .. 'cancels', id, (claim.epoch or owner[2] or '') .. ' ' .. claim.number)
    to_ring[claim.epoch and parse_away(redis.call('HGET', P .. 'away', claim.name)).node or owner[1] or ''] = true
  end
  if is_queued then drop_queued(P, id) end
  if claim or is_queued then
    note(P, 'cancelled', id, '', claim and 'it runs, and is asked to stop' or '')
    cancelled = cancelled + 1
  end
end
for node in pairs(to_ring) do
  if node ~= '' then ring_node(P, node, 'cancel ' .. P) end
end
return cancelled
