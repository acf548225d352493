-- push: put payloads into the queue. Repeating it while they are still queued changes nothing but the counters.
-- KEYS  shard prefixes, e.g. lowkiq:{orders:7}: (on Cluster one)
-- ARGV  1 layout (shards_count), 2 how many words a job has: 2 if all scores and times are the default and none has tags,
--       4 if none has tags, else 5; one more, 3 or 6, if any has a tenant; 7 if any runs less often; then if there are
--       several keys the number of jobs for each of them, and then for each job: id, payload, score ('' = after the last
--       default one), perform_in ('' = now, '+' and seconds = so long after now), tags (tags.lua), tenant (lanes.lua), how
--       it runs less often (fewer.lua)
-- returns {new, merged} of all together, and if there are several keys the error of the first one that has refused its
--       jobs, and that of all that were moved, with their places: the others have theirs   errors: LAYOUT (the queue has
--       another shards_count), NEWER (and a layout of a newer Lowkiq), RESHARDED (the shard was moved to that layout)
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

if #ARGV == 4 and ARGV[2] == '2' then
  local P, id, payload = KEYS[1], ARGV[3], ARGV[4]
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'watched')
  local time = redis.call('TIME')
  local now, micros = time[1] * 1000000 + time[2], string.sub('00000' .. time[2], -6)
  local at = time[1] .. '.' .. micros

  local is_pushed = false
  if meta[1] == ARGV[1] and not meta[3] and not meta[5] and tonumber(meta[2] or 0) < now then
    local owner = redis.call('HMGET', P .. 'owner', 'waiting', 'bell', 'open', 'until')
    local waiting, bell, open = owner[1], owner[2], owner[3]
    if not waiting then
      is_pushed = redis.call('ZADD', P .. 'due', 'NX', at, id) == 1
      if is_pushed then redis.call('HSET', P .. 'payloads', id, compact(now, payload)) end
    elseif bell and open and now < (owner[4] or 0) * 1000000 and #payload <= HANDED then
      -- An owner that waits for nothing, with a claim open, has an empty queue; then nothing is parked either.
      local may_go = waiting == 'inf' or now < waiting * 1000000 and not redis.call('ZSCORE', P .. 'due', id)
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
    redis.call('HSET', P .. 'meta', 'last_score', time[1] .. micros, 'pushed', (meta[4] or 0) + 1)
    return {1, 0}
  end
end

--@ shard count attempt now clock layout see
--@ bell ring
--@ payloads add bulk_write chunk
--@ tags add drop
--@ notes note
--@ fewer parse rule due keep
local width, clock = tonumber(ARGV[2]), now_us()

-- Most pushes have default scores and times, and none of their ids is queued: how many the index takes tells it.
-- Their times follow one another, so for most of them the last digit, and the last byte, is all that is new.
local ONES = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}

-- Puts `count` jobs, whose first word is ARGV[at], into the queue if they are such. They are due from `first` on.
local function push_new(P, at, count, first)
  local due, payloads = {}, {}
  local digits, bytes
  for i = 1, count * 2, 2 do
    local us, id = first + (i - 1) / 2, ARGV[at]
    local one, byte = us % 10, us % 256
    if one == 0 or i == 1 then digits = string.sub(stamp(us), 1, -2) end
    if byte == 0 or i == 1 then bytes = string.sub(compact(us, ''), 1, 3) end
    due[i], due[i + 1] = digits .. ONES[one], id
    payloads[i], payloads[i + 1] = id, bytes .. string.char(byte) .. ARGV[at + 1]
    at = at + width
  end
  if bulk_zadd(P .. 'due', due, count * 2) < count then return false end
  bulk_hset(P .. 'payloads', payloads, count * 2)
  return true
end

-- Few pushes have tenants, or move ids that have: all that they need is made here.
local lanes

local function by_lanes()
  if lanes then return lanes end
--@ lanes join hint
  lanes = {join = join_lanes, hint = hint}
  return lanes
end

-- Puts `count` jobs, whose first word is ARGV[at], into the queue one after the other. Returns how many of them are new,
-- the last default score, and when the first of them is due.
local function push_each(P, at, count, now, last_score, was_set_back, is_noted)
  local due, payloads, seen = {}, {}, {}
  local queueing, new = 0, 0
  local earliest = math.huge

  local function flush()
    if queueing == 0 then return end
    bulk_zadd(P .. 'due', due, queueing)
    bulk_hset(P .. 'payloads', payloads, queueing)
    queueing = 0
  end

  -- A job that is not in the queue, to be due then.
  local function queue(id, due_at, due_us, record)
    due[queueing + 1], due[queueing + 2] = due_at, id
    payloads[queueing + 1], payloads[queueing + 2] = id, record
    queueing = queueing + 2
    seen[id] = true
    if due_us < earliest then earliest = due_us end
    new = new + 1
    if queueing >= CHUNK then flush() end
  end

  for number = 1, count do
    local id, payload, given, perform_in, tags, fewer = ARGV[at], ARGV[at + 1], '', '', '', nil
    if width > 3 then given, perform_in = ARGV[at + 2], ARGV[at + 3] end
    if width > 4 then tags = ARGV[at + 4] end
    if width > 6 and ARGV[at + 6] ~= '' then fewer = parse_fewer(ARGV[at + 6]) end
    at = at + width
    -- Each job has a place behind all that came before it, whatever its score. It is due there, or so long after it; if
    -- the clock was set back, that lies ahead, and its place is by the clock.
    last_score = last_score < now and now or last_score + 1
    local place = was_set_back and now + number - 1 or last_score
    local score = given == '' and stamp(last_score) or given
    -- An id that came earlier in this call is flushed first, so that it merges like any other known one.
    if seen[id] then flush() end
    local is_queued = redis.call('HEXISTS', P .. 'payloads', id) == 1
    if tags ~= '' then
      if not is_queued then drop_tags(P, 'tags', {id}) end -- an older Lowkiq has left them
      add_tags(P, 'tags', id, tags)
    end
    if is_noted then note(P, 'pushed', id, '', is_queued and 'merged' or '') end
    local moves_to = nil
    if fewer then
      set_rule(P, id, fewer)
      if perform_in == '' then moves_to = fewer_due(P, id, fewer, place, is_queued) end
    end
    if is_queued then
      if fewer and fewer.keeps_one then
        keep_one(P, id, fewer.keep, score, payload)
      else
        payloads_add(P .. 'payloads', id, score, payload)
      end
      if moves_to then
        redis.call('ZADD', P .. 'due', stamp(moves_to), id)
        by_lanes().hint(P, id, stamp(moves_to))
        earliest = math.min(earliest, moves_to)
      end
    elseif moves_to then
      queue(id, stamp(moves_to), moves_to, score .. ':' .. payload)
    elseif perform_in ~= '' then
      if string.sub(perform_in, 1, 1) == '+' then perform_in = stamp(place + perform_in * 1000000) end
      queue(id, perform_in, tonumber(perform_in) * 1000000, score .. ':' .. payload)
    elseif given == '' and not was_set_back then
      queue(id, score, place, compact(place, payload))
    else
      queue(id, stamp(place), place, score .. ':' .. payload)
    end
  end
  flush()
  return new, last_score, earliest
end

-- Puts `count` jobs, whose first word is ARGV[at], into a shard. Returns a refusal, or nil and how many of them are new.
local function push(P, at, count)
  local refusal, layout, last_before, seen_before, pushed, is_noted = check_layout(P, ARGV[1], true)
  if refusal then return refusal end

  local now = shard_now(P, last_before, clock)
  last_before = tonumber(last_before)
  local was_set_back = last_before > now
  -- The first write is one that Redis refuses when memory is full, so that a refused push has changed nothing.
  if not layout then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end
  if is_noted and not is_noting(P) then
    redis.call('HDEL', P .. 'meta', 'watched')
    is_noted = false
  end

  local new, first = count, math.max(last_before + 1, now)
  local last_score, earliest = first + count - 1, first
  -- A lone job has been tried above.
  local may_be_new = width < 4 and not was_set_back and (count > 1 or SHARDS > 1)
  if is_noted or not (may_be_new and push_new(P, at, count, first)) then
    new, last_score, earliest = push_each(P, at, count, now, last_before, was_set_back, is_noted)
  end
  if width == 3 or width > 5 then by_lanes().join(P, at, count, width, width == 3 and 2 or 5) end
  last_score = math.max(last_score, now)
  -- Redis itself would print these numbers in ten times the time.
  local scored, counted = string.format('%d', last_score), string.format('%d', pushed + count)
  redis.call('HSET', P .. 'meta', 'last_score', scored, 'pushed', counted)
  if new < count then redis.call('HINCRBY', P .. 'meta', 'merged', count - new) end
  if seen_before then see(P, now, was_set_back, tonumber(seen_before)) end
  if earliest < math.huge then ring(P, earliest, was_set_back and now or last_score) end
  return nil, new
end

if SHARDS == 1 then
  local count = (#ARGV - 2) / width
  local refusal, new = push(KEYS[1], 3, count)
  return refusal or {new, count - new}
end

local at, new, taken, errors, sent_on = 3 + SHARDS, 0, 0, {}, nil
for i = 1, SHARDS do
  local count = tonumber(ARGV[2 + i])
  local found, why = attempt(function()
    local refusal, news = push(KEYS[i], at, count)
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
