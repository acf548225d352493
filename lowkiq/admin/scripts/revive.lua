--! once
-- revive: morgue → queue, at retry_count -1 and now, in the order of the ids here, or parked behind a run of the id, or
-- blocked with it (claimed.lua), or held, as it waits for others still (waiting.lua). What is told of its death is its last error, until it has run. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 most payloads of an id to merge at a time, then ids
-- returns {revived, then the ids of which payloads are left in the morgue}   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock first_place note_time
--@ moving whole
--@ payloads move
--@ tags copy drop
--@ endings by_hand
--@ claimed never
--@ fewer keeping
--@ notes note
--@ waiting again
--@ lanes hint
--@ bell ring
local P = KEYS[1]
local refusal, _, last_score, seen = check_whole(P, ARGV[1])
if refusal then return refusal end
local now = shard_now(P, last_score)
local place, touched = first_place(now, tonumber(last_score)), 0
local reply = {0}
for i = 3, #ARGV do
  local id = ARGV[i]
  if redis.call('HEXISTS', P .. 'morgue:payloads', id) == 1 then
    copy_tags(P, 'morgue:tags', 'tags', id)
    local error = redis.call('HGET', P .. 'morgue:errors', id)
    local is_told = error and error ~= BY_HAND and redis.call('HEXISTS', P .. 'errors', id) == 0
    if is_told then redis.call('HSET', P .. 'errors', id, error) end
    local done, left = redis.call('HGET', P .. 'morgue:waits', id), 0
    if done then
      wait_again(P, ARGV[1], id, done, P .. 'morgue:waits:' .. id)
      redis.call('HDEL', P .. 'morgue:waits', id)
    end
    if keep_with(P, id, redis.call('HGET', P .. 'morgue:payloads', id), P .. 'morgue:payloads:' .. id) then
      redis.call('HDEL', P .. 'morgue:payloads', id)
    else
      left = payloads_move(P .. 'morgue:payloads', P .. 'payloads', id, tonumber(ARGV[2]))
    end
    if left > 0 then
      reply[#reply + 1] = id
    else
      redis.call('ZREM', P .. 'morgue', id)
      redis.call('HDEL', P .. 'morgue:errors', id)
      redis.call('HDEL', P .. 'morgue:newer', id)
      drop_tags(P, 'morgue:tags', {id})
      note(P, 'revived', id, '')
      reply[1] = reply[1] + 1
    end
    local at = redis.call('ZSCORE', P .. 'due', id)
    if not at or tonumber(at) < tonumber(NEVER) then
      redis.call('ZADD', P .. 'due', stamp(place + touched), id)
      hint(P, id, stamp(place + touched))
    end
    redis.call('ZREM', P .. 'retries', id)
    touched = touched + 1
  end
end
if touched > 0 then
  note_time(P, place + touched - 1, tonumber(last_score), seen)
  ring(P, now, now)
end
return reply
