--! allow-oom
--! once
-- pause: have nothing be claimed of a shard until it is resumed (pausing.lua); or see how far that has come. Repeating it
-- changes who and why, and no more.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 who and why, as JSON; '' to see only
-- returns {since when it is paused, '' if it is not; the node that may still start what it has claimed, or ''}
-- errors: LAYOUT, NEWER
--@ shard now stamp layout
--@ pausing rests
--@ bell ring_node
local P = KEYS[1]
local refusal, layout = check_layout(P, ARGV[1], true)
if refusal then return refusal end

local now = now_us()
local since = string.match(redis.call('GET', P .. 'paused') or '', '^%S+')
if ARGV[2] ~= '' then
  since = since or stamp(now)
  -- It comes first, since it frees: so queues are paused when memory is full.
  redis.call('HDEL', P .. 'owner', 'open')
  redis.call('SET', P .. 'paused', since .. ' ' .. ARGV[2])
  if not layout then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end
end
if not since or is_at_rest(P, now) then return {since or '', ''} end
local node = redis.call('HGET', P .. 'owner', 'node')
ring_node(P, node, 'pause ' .. P)
return {since, node}
