--! once
-- recur: set, change or remove an entry that recurs (includes/recurring.lua), if it still is what the caller takes it for.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 id, 3 what it is, '' if there is none, 4 what it is to be, '' to remove it, 5 when it fires next, '' while
--       it is paused
-- returns 1, or 0 if it is something else   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ moving whole
--@ bell ring_node
local P, id = KEYS[1], ARGV[2]
local refusal, layout = check_whole(P, ARGV[1])
if refusal then return refusal end
if (redis.call('HGET', P .. 'recurring', id) or '') ~= ARGV[3] then return 0 end

if ARGV[4] == '' then
  redis.call('HDEL', P .. 'recurring', id)
  redis.call('HDEL', P .. 'recur_last', id)
else
  redis.call('HSET', P .. 'recurring', id, ARGV[4])
  if not layout then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end
end
if ARGV[5] == '' then
  redis.call('ZREM', P .. 'recurs', id)
else
  redis.call('ZADD', P .. 'recurs', ARGV[5], id)
  local node = redis.call('HGET', P .. 'owner', 'node')
  if node then ring_node(P, node, 'recurs ' .. P) end
end
return 1
