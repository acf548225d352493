-- What is done for jobs when Redis's clock was set back.

--- clock_back
-- When Redis's clock was set back, jobs that were due would wait for as long again. So they are moved back by as much: all
-- that is queued for a time up to `seen`, the latest that a push has seen: it is the last score, until this is done,
-- and afterwards meta's `seen`, which pushes keep up to date until the clock has made up for it.

-- Whether a job that is due then was due before the clock was set back.
local function was_due(due_us, now, last_score, seen)
  return last_score > now and due_us <= (tonumber(seen) or last_score)
end

--- follow_clock_back
--@ shard stamp
--@ payloads get
-- The latest jobs go first and `seen` goes down with them, so that one which fails meanwhile, and is due again after a
-- while by the new clock, is not moved again and again. Returns what was moved: when it is due, and its id, ...
local MOVED_AT_ONCE = 500

local function follow_clock_back(P, now, last_score, seen)
  seen = tonumber(seen) or last_score
  if last_score <= now or seen <= now then return {} end
  local found = redis.call('ZREVRANGEBYSCORE', P .. 'due', stamp(seen), '(' .. stamp(now), 'WITHSCORES',
    'LIMIT', 0, MOVED_AT_ONCE)
  local moved = {}
  for i = 1, #found, 2 do
    -- A compact record's score is the due time, which changes: it is written in full.
    redis.call('HSET', P .. 'payloads', found[i], payloads_get(P .. 'payloads', found[i]))
    moved[i], moved[i + 1] = stamp(found[i + 1] * 1000000 - (seen - now)), found[i]
  end
  if #moved > 0 then redis.call('ZADD', P .. 'due', unpack(moved)) end
  local rest = #found < MOVED_AT_ONCE * 2 and now or found[#found] * 1000000
  redis.call('HSET', P .. 'meta', 'seen', string.format('%.0f', rest))
  return moved
end
