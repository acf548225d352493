--! allow-oom
-- feed: have a new shard wait for old ones, from which jobs are to come (moving.lua); or note that one of them has another
-- mover. Repeating it changes nothing.
-- KEYS  1 prefix of the new shard
-- ARGV  1 layout, 2 index of the old shard, 3 epoch of its mover, 4 number of old shards, 5 the step between those that feed
--       this one, 6 a score in microseconds that no push to the old shard will reach, 7 its `seen` (clock_back) or '',
--       8 since when, by whom and why it is paused (pausing.lua), '' if it is not, '-' if it was marked: a pause of that time
--       was told before, and may have ended here since, 9 a number that no letter of the old shard will reach (letters.lua)
-- returns 1; 0 where all has come, also from that marked shard: whatever it holds, by a failover of its server, is here
--       errors: LAYOUT, NEWER, RESHARDED, FENCED (a later mover is known)
--@ shard layout
--@ moving begun
local P, old, epoch = KEYS[1], ARGV[2], tonumber(ARGV[3])
forget_lost_feeders(P, ARGV[1], epoch)
local refusal, layout, last_score, seen = check_layout(P, ARGV[1], true)
if refusal then return refusal end
local is_whole = redis.call('HEXISTS', P .. 'meta', 'whole') == 1
if is_whole and ARGV[8] == '-' then return 0 end
local fed, fed_by = redis.call('HGET', P .. 'fed', old), redis.call('HGET', P .. 'feeders', old)
if tonumber(fed or -1) >= epoch or tonumber(fed_by or -1) > epoch then
  return refuse('FENCED', 'fed by a mover of epoch ' .. (fed_by or fed))
end
if is_whole then
  -- A failover has lost the mark, so it may have been pushed to since: it comes once more. The epoch of an owner of this
  -- shard is above those of all movers until now.
  local last = redis.call('HGET', P .. 'owner', 'epoch') or '0'
  if tonumber(last) >= epoch then return refuse('FENCED', 'all had come by epoch ' .. last) end
  redis.call('HDEL', P .. 'meta', 'whole')
  redis.call('HSET', P .. 'feeders', old, '0')
end

-- It comes first, since it frees; and nothing is handed over from here on (push.lua).
redis.call('HDEL', P .. 'owner', 'open')
if not layout then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end
if redis.call('EXISTS', P .. 'feeders', P .. 'fed') == 0 then
  for i = tonumber(old) % ARGV[5], ARGV[4] - 1, tonumber(ARGV[5]) do
    redis.call('HSET', P .. 'feeders', string.format('%d', i), '0')
  end
end
redis.call('HSET', P .. 'feeders', old, ARGV[3])
-- What is pushed, asked or told here comes after all that was there, be Redis's clock behind here.
if tonumber(ARGV[6]) > tonumber(last_score) then redis.call('HSET', P .. 'meta', 'last_score', ARGV[6]) end
local posted = tonumber(redis.call('HGET', P .. 'meta', 'posted')) or 0
if tonumber(ARGV[9]) > posted then redis.call('HSET', P .. 'meta', 'posted', ARGV[9]) end
if ARGV[7] ~= '' and tonumber(ARGV[7]) > tonumber(seen or 0) then redis.call('HSET', P .. 'meta', 'seen', ARGV[7]) end
-- A pause is told before the mark, which is made only if it is the same still: else it ends here, too.
local pause, told = ARGV[8], redis.call('HGET', P .. 'meta', 'pause:' .. old)
if pause == '-' then return 1 end
if told and told ~= pause and redis.call('GET', P .. 'paused') == told then
  redis.call('UNLINK', P .. 'paused')
  redis.call('HDEL', P .. 'owner', 'rests')
end
if pause ~= '' then
  redis.call('SET', P .. 'paused', pause, 'NX')
  redis.call('HSET', P .. 'meta', 'pause:' .. old, pause)
elseif told then
  redis.call('HDEL', P .. 'meta', 'pause:' .. old)
end
return 1
