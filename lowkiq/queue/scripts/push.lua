-- push: put payloads into the queue. Repeating it changes nothing, nor does a try that comes late (senders.lua).
-- KEYS  shard prefixes, e.g. lowkiq:{orders:7}: (on Cluster one)
-- ARGV  1 layout (shards_count), 2 sender, 3 number (senders.lua), 4 how many words a job has: 2 if all scores and times are
--       the default and none has tags, 4 if none has tags, else 5; one more, 3 or 6, if any has a tenant; 7 if any runs less
--       often; 8 if any waits for others; then if there are several keys the number of jobs for each of them, and then for each job: id,
--       payload, score ('' = after the last default one), perform_in ('' = now, '+' and seconds = so long after now), tags
--       (tags.lua), tenant (lanes.lua), how it runs less often (fewer.lua), after whom it runs (waiting.lua)
-- returns {new, merged} of all together, and if there are several keys the error of the first one that has refused its
--       jobs, and that of all that were moved, with their places: the others have theirs   errors: LAYOUT (the queue has
--       another shards_count), NEWER (and a layout of a newer Lowkiq), RESHARDED (the shard was moved to that layout), LATE
--       (and Redis's time)
--@ payloads compact
--@ bell tell

-- Most pushes are of one job with the default score and due time, now, while Redis's clock runs on. They are done here:
-- into the owner's open claim or, where it doesn't wait and nothing is queued for the id, into the queue. All others are
-- left to what follows, with nothing changed. Few functions are made before this, as Lua makes each anew whenever it comes
-- by, and what Redis gave as text is not printed again.
--
-- A claim that found nothing stays open: `open` is its epoch and number, until another one is made or the lease ends. A
-- push may put its job right into it, in the owner's name (I1), and rings with all that the owner needs to know of it:
-- the job is on its way after half the commands, and without the thread's having to ask. Only while that thread listens,
-- and to a lease that lasts: else the job belongs in the queue, where it merges and others find it.
local HANDED = 16384 -- bytes of a payload; a longer one would cost more by being copied than it saves

if #ARGV == 6 and ARGV[4] == '2' then
  local P, sender, number, id, payload = KEYS[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6]
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'watched', sender)
  local time = redis.call('TIME')
  local micros = #time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6)
  local at, stamped = time[1] .. '.' .. micros, time[1] .. micros

  local is_pushed = false
  -- A sender that the shard knows, which goes on, in time (senders.lua). As texts with as many digits numbers and times
  -- compare so, too, and need not be parsed.
  local is_news = meta[6] and meta[6] < number and stamped <= number
  if is_news and meta[1] == ARGV[1] and not meta[3] and not meta[5] and (meta[2] or '') < stamped then
    local owner = redis.call('HMGET', P .. 'owner', 'waiting', 'bell', 'open', 'until')
    local waiting, bell, open = owner[1], owner[2], owner[3]
    if not waiting then
      is_pushed = redis.call('ZADD', P .. 'due', 'NX', at, id) == 1
      if is_pushed then redis.call('HSET', P .. 'payloads', id, compact(time[1] * 1000000 + time[2], payload)) end
    elseif bell and open and at < (owner[4] or '') and #payload <= HANDED then
      -- An owner that waits for nothing, with a claim open, has an empty queue; then nothing is parked either.
      local may_go = waiting == 'inf' or at < waiting and not redis.call('ZSCORE', P .. 'due', id)
      is_pushed = may_go and redis.call('EXISTS', bell .. ':idle') == 1
      if is_pushed then
        -- The first write is one that Redis refuses when memory is full: a push that fails has taken nothing away.
        redis.call('RPUSH', P .. 'claim', id, at .. ':-1:' .. at .. ':' .. payload)
        redis.call('HDEL', P .. 'owner', 'waiting', 'open')
        take_idle(bell)
        tell(bell, P .. ' 0 1 ' .. open .. ' ' .. at .. ' ' .. #id .. ' ' .. id .. payload)
      end
    end
  end
  if is_pushed then
    redis.call('HSET', P .. 'meta', 'last_score', stamped, 'pushed', string.format('%d', (meta[4] or 0) + 1), sender, number)
    return {1, 0}
  end
end

--@ shard count attempt now
--@ pushing into
local sender, number, width, clock = ARGV[2], ARGV[3], tonumber(ARGV[4]), now_us()

if SHARDS == 1 then
  local count = (#ARGV - 4) / width
  local refusal, new = push_into(KEYS[1], ARGV[1], clock, ARGV, width, 5, count, sender, number)
  return refusal or {new, count - new}
end

local at, new, taken, errors, sent_on = 5 + SHARDS, 0, 0, {}, nil
for i = 1, SHARDS do
  local count = tonumber(ARGV[4 + i])
  local found, why = attempt(function()
    local refusal, news = push_into(KEYS[i], ARGV[1], clock, ARGV, width, at, count, sender, number)
    return {news or 0, refusal and refusal.err}
  end)
  why = why or found[2]
  if why and string.sub(why, 1, 9) == 'RESHARDED' then
    sent_on = (sent_on or why) .. ' ' .. i
  elseif why then
    errors[1] = errors[1] or why
  else
    new, taken = new + found[1], taken + count
  end
  at = at + count * width
end
errors[#errors + 1] = sent_on
return {new, taken - new, unpack(errors)}
