-- How jobs get into a shard: by a push, and by all that pushes inside a script. They come as a flat list of words, so many for
-- each, as push.lua has them.

--- new
--@ shard stamp
--@ payloads compact bulk_write
-- Most pushes have default scores and times, and none of their ids is queued: how many the index takes tells it.
-- Their times follow one another, so for most of them the last digit, and the last byte, is all that is new.
local ONES = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}

-- Puts `count` jobs, whose first word is words[at], into the queue if they are such. They are due from `first` on.
local function push_new(P, words, width, at, count, first)
  local due, payloads = {}, {}
  local digits, bytes
  for i = 1, count * 2, 2 do
    local us, id = first + (i - 1) / 2, words[at]
    local one, byte = us % 10, us % 256
    if one == 0 or i == 1 then digits = string.sub(stamp(us), 1, -2) end
    if byte == 0 or i == 1 then bytes = string.sub(compact(us, ''), 1, 3) end
    due[i], due[i + 1] = digits .. ONES[one], id
    payloads[i], payloads[i + 1] = id, bytes .. string.char(byte) .. words[at + 1]
    at = at + width
  end
  if bulk_zadd(P .. 'due', due, count * 2) < count then return false end
  bulk_hset(P .. 'payloads', payloads, count * 2)
  return true
end

--- lanes
-- Few pushes have tenants, or move ids that have: all that they need is made here.
local lanes

local function by_lanes()
  if lanes then return lanes end
--@ lanes join hint
  lanes = {join = join_lanes, hint = hint}
  return lanes
end

--- each
--@ pushing lanes
--@ shard stamp
--@ payloads compact add bulk_write chunk
--@ tags add
--@ notes note
--@ rules parse rule
--@ fewer due keep
--@ waiting parted wait
-- Puts `count` jobs, whose first word is words[at], into the queue one after the other. Returns how many of them are new,
-- the last default score, and when the first of them is due.
local function push_each(P, layout, words, width, at, count, now, last_score, was_set_back, is_noted)
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
    local id, payload, given, perform_in, tags, fewer, after = words[at], words[at + 1], '', '', '', nil, ''
    if width > 3 then given, perform_in = words[at + 2], words[at + 3] end
    if width > 4 then tags = words[at + 4] end
    if width > 6 and words[at + 6] ~= '' then fewer = parse_fewer(words[at + 6]) end
    if width > 7 then after = words[at + 7] end
    at = at + width
    -- Each job has a place behind all that came before it, whatever its score. It is due there, or so long after it; if
    -- the clock was set back, that lies ahead, and its place is by the clock.
    last_score = last_score < now and now or last_score + 1
    local place = was_set_back and now + number - 1 or last_score
    local score = given == '' and stamp(last_score) or given
    -- An id that came earlier in this call is flushed first, so that it merges like any other known one.
    if seen[id] then flush() end
    local is_queued = redis.call('HEXISTS', P .. 'payloads', id) == 1
    if after ~= '' then wait_for(P, layout, id, parted(after)) end
    if tags ~= '' then add_tags(P, 'tags', id, tags) end
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

--- into
--@ pushing new each
--@ shard count clock layout see
--@ bell ring
--@ notes note
--@ senders heard late forget
-- Puts `count` jobs, whose first word is words[at], into a shard. Returns a refusal, or nil and how many of them are new.
-- A sender's call of that number is applied once (senders.lua), also if its first try came before the shard was moved.
local function push_into(P, layout_here, clock, words, width, at, count, sender, number)
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'watched', sender or 'layout')
  if sender then
    local said = heard(meta[6], number)
    if said and said ~= 'OLD' then return nil, tonumber(said) or count end
    if said or clock > tonumber(number) then return too_late(clock) end
  end
  local refusal, layout, last_before, seen_before, pushed, is_noted = check_layout(P, layout_here, true, meta)
  if refusal then return refusal end

  local now = shard_now(P, last_before, clock)
  last_before = tonumber(last_before)
  local was_set_back = last_before > now
  -- The first write is one that Redis refuses when memory is full, so that a refused push has changed nothing.
  if not layout then redis.call('HSET', P .. 'meta', 'layout', layout_here) end
  if is_noted and not is_noting(P) then
    redis.call('HDEL', P .. 'meta', 'watched')
    is_noted = false
  end

  local new, first = count, math.max(last_before + 1, now)
  local last_score, earliest = first + count - 1, first
  -- A lone job has been tried above.
  local may_be_new = width < 4 and not was_set_back and (count > 1 or SHARDS > 1)
  if is_noted or not (may_be_new and push_new(P, words, width, at, count, first)) then
    new, last_score, earliest = push_each(P, layout_here, words, width, at, count, now, last_before, was_set_back, is_noted)
  end
  if width == 3 or width > 5 then by_lanes().join(P, words, at, count, width, width == 3 and 2 or 5) end
  last_score = math.max(last_score, now)
  -- Redis itself would print these numbers in ten times the time.
  local scored, counted = string.format('%d', last_score), string.format('%d', pushed + count)
  if sender then
    if not meta[6] then forget_senders(P .. 'meta', clock) end
    redis.call('HSET', P .. 'meta', 'last_score', scored, 'pushed', counted, sender, new < count and number .. ' ' .. new or number)
  else
    redis.call('HSET', P .. 'meta', 'last_score', scored, 'pushed', counted)
  end
  if new < count then redis.call('HINCRBY', P .. 'meta', 'merged', count - new) end
  if seen_before then see(P, now, was_set_back, tonumber(seen_before)) end
  if earliest < math.huge then ring(P, earliest, was_set_back and now or last_score) end
  return nil, new
end
