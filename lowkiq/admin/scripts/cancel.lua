--! allow-oom
-- cancel: delete what is queued of jobs; and mark those that run, so that none of them comes back unless it is done
-- (cancelling.lua), and ring their owner, which asks them to stop. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were queued or run   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard oom
--@ moving whole
--@ bell ring_node
--@ claimed drop
--@ notes note
local P = KEYS[1]
local refusal = check_whole(P, ARGV[1])
if refusal then return refusal end

local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch')
local cancelled, is_any_running = 0, false
free_first(P)
for i = 2, #ARGV do
  local id = ARGV[i]
  local number = claim_of(P, id)
  local is_queued = redis.call('HEXISTS', P .. 'payloads', id) == 1
  if number then
    redis.call('HSET', P .. 'cancels', id, (owner[2] or '') .. ' ' .. number)
    is_any_running = true
  end
  if is_queued then drop_queued(P, id) end
  if number or is_queued then
    note(P, 'cancelled', id, '', number and 'it runs, and is asked to stop' or '')
    cancelled = cancelled + 1
  end
end
if is_any_running and owner[1] then ring_node(P, owner[1], 'cancel ' .. P) end
return cancelled
