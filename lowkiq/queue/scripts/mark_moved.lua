--! allow-oom
-- mark_moved: from here on an old shard sends everybody on to the new ones (moving.lua), if all of these know how far its
-- scores, and the numbers of its letters, go. Repeating it changes nothing.
-- KEYS  1 prefix of the old shard
-- ARGV  1 the mover, 2 epoch, 3 the mark, 4 the score that the new ones know of, in microseconds, 5 the pause that they know of, 6 the
--       number of a letter, likewise
-- returns {1, or 0 if these are too low, or another pause; now, the last score, `seen` (clock_back) or '', since when it is paused, by whom and
--       why (pausing.lua) or '', the last number of a letter}, times in microseconds   errors: FENCED, UNSETTLED (a claim is in hand)
--@ shard now owner
local P = KEYS[1]
local refusal = fence(P, ARGV[1], ARGV[2])
if refusal then return refusal end
local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'posted')
local last_score, posted, paused = meta[2] or '0', meta[4] or '0', redis.call('GET', P .. 'paused') or ''
local is_marked = meta[1] == ARGV[3]
local is_known = tonumber(last_score) <= tonumber(ARGV[4]) and (tonumber(posted) or 0) <= tonumber(ARGV[6])
if not is_marked and is_known and paused == ARGV[5] then
  -- Claims that are away move along.
  local has_claims = redis.call('EXISTS', P .. 'claim') == 1 or redis.call('HLEN', P .. 'asides') > redis.call('HLEN', P .. 'away')
  if has_claims then return refuse('UNSETTLED', 'a claim is in hand') end
  redis.call('HDEL', P .. 'owner', 'open')
  redis.call('HSET', P .. 'meta', 'layout', ARGV[3])
  is_marked = true
end
return {is_marked and 1 or 0, string.format('%.0f', now_us()), last_score, meta[3] or '', paused, posted}
