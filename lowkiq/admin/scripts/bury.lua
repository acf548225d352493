--! once
-- bury: queue → morgue, with the job's last error, or that of its id there. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 most payloads of an id to merge at a time, 3 'any' or 'failed' (only jobs that have failed), then ids
-- returns {buried, then the ids of which payloads are left in the queue}   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard now
--@ moving whole
--@ payloads move
--@ tags copy
--@ notes note
--@ endings by_hand bury unqueue
--@ waiting bury
local P = KEYS[1]
local refusal = check_whole(P, ARGV[1])
if refusal then return refusal end
local now = now_us()
local reply = {0}
for i = 4, #ARGV do
  local id = ARGV[i]
  local wanted = ARGV[3] == 'any' or redis.call('ZSCORE', P .. 'retries', id)
  if wanted and redis.call('HEXISTS', P .. 'payloads', id) == 1 then
    local error = redis.call('HGET', P .. 'errors', id) or redis.call('HGET', P .. 'morgue:errors', id)
    morgue_entry(P, id, error or BY_HAND, now)
    copy_tags(P, 'tags', 'morgue:tags', id)
    if payloads_move(P .. 'payloads', P .. 'morgue:payloads', id, tonumber(ARGV[2])) > 0 then
      reply[#reply + 1] = id
    else
      bury_waits(P, id)
      unqueue(P, id)
      note(P, 'buried', id, '')
      reply[1] = reply[1] + 1
    end
  end
end
return reply
