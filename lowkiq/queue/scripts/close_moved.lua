--! allow-oom
-- close_moved: leave of an old shard that is empty only what sends people on (moving.lua). Repeating it changes nothing.
-- KEYS  1 prefix of the old shard
-- ARGV  1 the mover, 2 epoch, 3 the step in which the new ones were told that all has come (note_step.lua)
-- returns 1, or 0 if it holds something   errors: FENCED (also where they have lost it), INVALID (it is not marked)
--@ moving mover holds
--@ lanes left
local P = KEYS[1]
local meta = redis.call('HMGET', P .. 'meta', 'layout', 'closed')
if meta[2] then return 1 end
local refusal = fence_mover(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
drop_lanes(P) -- hints that were wrong, some at a time
if holds_anything(P) then return 0 end

for _, tag in ipairs(redis.call('ZRANGE', P .. 'tag_counts', 0, -1)) do redis.call('UNLINK', P .. 'tagged:' .. tag) end
redis.call('UNLINK', P .. 'tag_counts', P .. 'claimed_tags', P .. 'cancels', P .. 'paused', P .. 'watch', P .. 'feeders',
  P .. 'fed', P .. 'letters', P .. 'relayed')
-- A push that it has applied may be repeated still, by whoever has not heard of it (senders.lua).
for _, field in ipairs(redis.call('HKEYS', P .. 'meta')) do
  if string.sub(field, 1, 1) ~= '~' then redis.call('HDEL', P .. 'meta', field) end
end
redis.call('HSET', P .. 'meta', 'layout', meta[1], 'closed', '1')
redis.call('UNLINK', P .. 'owner')
return 1
