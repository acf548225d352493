-- push: put payloads into the queue. Repeating it while they are still queued changes nothing but the counters.
-- KEYS  1 shard prefix, e.g. lowkiq:{orders:7}:
-- ARGV  1 layout (shards_count), 2 how many words a job has: 2 if all scores and times are the default, else 4, then for
--       each job: id, payload, score ('' = after the last default one), perform_in ('' = now)
-- returns {new, merged}   errors: LAYOUT (the queue has another shards_count), NEWER (and a layout of a newer Lowkiq)
--@ one
--@ clock
--@ layout
--@ doorbell
--@ bag
--@ many
--@ seen
local P = KEYS[1]
local refusal, is_new_shard, last_before, seen_before, pushed, merged_before = check_layout(P, ARGV[1])
if refusal then return refusal end

local now = shard_now(P, last_before)
last_before = tonumber(last_before)
local was_set_back = last_before > now
local last_score = last_before
local width = tonumber(ARGV[2])
local count = (#ARGV - 2) / width

-- The first write is one that Redis refuses when memory is full, so that a refused push has changed nothing.
if is_new_shard then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end

local function remember(score, merged)
  redis.call('HSET', P .. 'meta', 'last_score', score, 'pushed', pushed + count, 'merged', merged_before + merged)
  if seen_before then see(P, now, was_set_back, tonumber(seen_before)) end
end

-- Most pushes are of fresh jobs, and none of their ids is queued: how many the index takes tells whether it is so.
-- Their times follow one another, so for most of them the last digit, and the last byte, is all that is new.
local ONES = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}

local function push_fresh()
  local due, payloads = {}, {}
  local first = math.max(last_before + 1, now)
  local digits, bytes
  for i = 1, count do
    local us, at = first + i - 1, i * 2
    local one, byte = us % 10, us % 256
    if one == 0 or i == 1 then digits = string.sub(stamp(us), 1, -2) end
    if byte == 0 or i == 1 then bytes = string.sub(fresh(us, ''), 1, 3) end
    local id = ARGV[at + 1]
    due[at - 1], due[at] = digits .. ONES[one], id
    payloads[at - 1], payloads[at] = id, bytes .. string.char(byte) .. ARGV[at + 2]
  end
  if zadd_many(P .. 'due', due, count * 2) < count then return false end
  hset_many(P .. 'payloads', payloads, count * 2)
  remember(first + count - 1, 0)
  ring(P, first, first + count - 1)
  return true
end

if width == 2 and count > 1 and not was_set_back and push_fresh() then return {count, 0} end

local due, payloads, seen = {}, {}, {}
local queueing, new, merged = 0, 0, 0
local earliest = math.huge

local function flush()
  if queueing == 0 then return end
  zadd_many(P .. 'due', due, queueing)
  hset_many(P .. 'payloads', payloads, queueing)
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

local at = 3
for _ = 1, count do
  local id, payload, given, perform_in = ARGV[at], ARGV[at + 1], '', ''
  if width == 4 then given, perform_in = ARGV[at + 2], ARGV[at + 3] end
  at = at + width
  local score = given
  if given == '' then
    last_score = last_score < now and now or last_score + 1
    score = stamp(last_score)
  end
  -- An id that came earlier in this call is flushed first, so that it merges like any other known one.
  if seen[id] then flush() end
  if redis.call('HEXISTS', P .. 'payloads', id) == 1 then
    bag_add(P .. 'payloads', id, score, payload)
    merged = merged + 1
  elseif perform_in ~= '' then
    queue(id, perform_in, tonumber(perform_in) * 1000000, score .. ':' .. payload)
  elseif given == '' and not was_set_back then
    -- A fresh job is due at its score, so that jobs of one call are claimed in their order; if the clock was set back,
    -- that lies ahead.
    queue(id, score, last_score, fresh(last_score, payload))
  else
    queue(id, stamp(now), now, score .. ':' .. payload)
  end
end
flush()

last_score = math.max(last_score, now)
remember(last_score, merged)
if new > 0 then ring(P, earliest, was_set_back and now or last_score) end
return {new, merged}
