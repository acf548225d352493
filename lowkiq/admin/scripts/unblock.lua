--! allow-oom
--! once
-- unblock: have blocked jobs go on, in the order of their ids here, due now and at retry_count -1. Repeating it changes
-- nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 'retry' or 'skip' (without their lowest payload, and without its error), then ids
-- returns how many were blocked   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock oom first_place note_time
--@ moving whole
--@ payloads fold
--@ claimed blocked
--@ endings drop
--@ notes note
--@ lanes hint
--@ bell ring
local P = KEYS[1]
local refusal, _, last_score, seen = check_whole(P, ARGV[1])
if refusal then return refusal end
local now = shard_now(P, last_score)
local first, moved = first_place(now, tonumber(last_score)), 0

-- Returns whether anything is left.
local function skip(id)
  local zset = P .. 'payloads:' .. id
  if redis.call('HGET', P .. 'payloads', id) ~= '*' then
    drop_queued(P, id)
    return false
  end
  redis.call('ZPOPMIN', zset)
  payloads_fold(P .. 'payloads', id)
  redis.call('HDEL', P .. 'errors', id)
  redis.call('HDEL', P .. 'checkpoints', id)
  return true
end

local blocked = 0
free_first(P)
for i = 3, #ARGV do
  local id = ARGV[i]
  if is_blocked(P, id) then
    blocked = blocked + 1
    note(P, ARGV[2] == 'skip' and 'skipped' or 'retried', id, '')
    if ARGV[2] ~= 'skip' or skip(id) then
      redis.call('ZREM', P .. 'blocked', id)
      redis.call('ZADD', P .. 'due', stamp(first + moved), id)
      hint(P, id, stamp(first + moved))
      moved = moved + 1
    end
  end
end
if moved > 0 then
  note_time(P, first + moved - 1, tonumber(last_score), seen)
  ring(P, now, now)
end
return blocked
