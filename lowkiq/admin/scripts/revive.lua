-- revive: morgue → queue, at retry_count -1 and now, or parked behind a run of the id (claimed.lua). Repeating it changes
-- nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 most payloads of an id to merge at a time, then ids
-- returns {revived, then the ids of which payloads are left in the morgue}   errors: LAYOUT, NEWER
--@ shard clock layout note_time
--@ payloads move
--@ tags copy drop
--@ notes note
--@ bell ring
local P = KEYS[1]
local refusal, _, last_score, seen = check_layout(P, ARGV[1], true)
if refusal then return refusal end
local now = shard_now(P, last_score)
local reply, touched = {0}, false
for i = 3, #ARGV do
  local id = ARGV[i]
  if redis.call('HEXISTS', P .. 'morgue:payloads', id) == 1 then
    copy_tags(P, 'morgue:tags', 'tags', id)
    if payloads_move(P .. 'morgue:payloads', P .. 'payloads', id, tonumber(ARGV[2])) > 0 then
      reply[#reply + 1] = id
    else
      redis.call('ZREM', P .. 'morgue', id)
      redis.call('HDEL', P .. 'morgue:errors', id)
      drop_tags(P, 'morgue:tags', {id})
      note(P, 'revived', id, '')
      reply[1] = reply[1] + 1
    end
    if redis.call('ZSCORE', P .. 'due', id) ~= 'inf' then redis.call('ZADD', P .. 'due', stamp(now), id) end
    redis.call('ZREM', P .. 'retries', id)
    redis.call('HDEL', P .. 'errors', id)
    touched = true
  end
end
if touched then
  note_time(P, now, tonumber(last_score), seen)
  ring(P, now, now)
end
return reply
