--! allow-oom
-- rate: tell of jobs that are claimed and are to start whether they may, or when; and note what is asked for beside: keys
-- that are to rest, and jobs that have started. It knows three lines for each key, each of which says when it is free:
--
-- `start`, of actual starts: at its time the next job may start, a tolerance earlier at the earliest (GCRA). `later`, of
-- jobs that came at their time and could not start: after an outage, say, or when the key was to rest. `next`, of all others:
-- a job that may not start gets a place there, far away perhaps, and is put back to the queue until then. Nobody passes a
-- line that comes before his own: a job without a place starts only if nobody has one. Who has had a place waits in `later`
-- then, before all in `next`: so an outage sends nobody to the end of the line, and lets nobody start in a burst.
--
-- A place is remembered until the job has started (its node says so with its next call) or its time is long past. Who asks
-- before his time is told of the same place: a repeated call changes no place, and at worst a start that was granted is lost.
-- With another rate all places are forgotten: who comes is placed anew. Actual starts are not.
-- KEYS  1 prefix of the rates of a queue
-- ARGV  1 microseconds between two starts, 2 between two places, 3 of tolerance, 4 most jobs that are to start now; then
--       lists, each with its length in front: to rest: key, seconds, id ('' for none) of a job that comes back then ·
--       started: key, id · asked: key, id
-- returns {now, for each that is asked: '' to start now, '+' the same, from a place, '-' to ask again once others have
--       started, or when to come}
--@ shard clock oom
local P = KEYS[1]
local SPACING, PLACE, TOLERANCE = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local MOST = tonumber(ARGV[4])
local DAY = 86400 * 1000000 -- µs for which a place is remembered once its time is past
local IDLE = 60 * 1000 -- ms for which the lines of a key are kept once all are free
local PRUNED = 2000 -- places that are forgotten at a time, at most: more than one call makes

local now = now_us()
local from = {} -- where each list begins, and ends
local at = 5
for i, width in ipairs({3, 2, 2}) do
  from[i] = {at + 1, at + ARGV[at] * width, width}
  at = at + 1 + ARGV[at] * width
end

local function each(list, action)
  for i = from[list][1], from[list][2], from[list][3] do action(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
end

-- No two jobs of no two keys have the same.
local function member_of(key, id)
  return #key .. ':' .. key .. id
end

-- The lines of the keys that are spoken of.
local lines, keys = {}, {}
local function know(key)
  if not lines[key] then
    lines[key] = {}
    keys[#keys + 1] = key
  end
end
each(1, know)
each(3, know)

-- If the clock was set back, times that lie ahead of it would for as long again.
local function follow_clock(line)
  local back = line.seen - now
  if back < SET_BACK then return end
  for _, name in ipairs({'start', 'later', 'next', 'rests'}) do line[name] = line[name] - back end
end

local function read_lines()
  if #keys == 0 then return end
  local names = {}
  for i, key in ipairs(keys) do names[i] = P .. 'line:' .. key end
  for i, text in ipairs(redis.call('MGET', unpack(names))) do
    local line = lines[keys[i]]
    local start, rests, later, next, seen, place = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
    line.start, line.rests, line.seen = tonumber(start) or 0, tonumber(rests) or 0, tonumber(seen) or 0
    local is_same = place == ARGV[2] -- the rate
    line.later, line.next = is_same and tonumber(later) or 0, is_same and tonumber(next) or 0
    follow_clock(line)
  end
end

local function write_lines()
  for _, key in ipairs(keys) do
    local line = lines[key]
    if line.has_changed then
      local free = math.max(line.start, line.later, line.next, line.rests, now)
      local text = string.format('%.0f %.0f %.0f %.0f %.0f %s', math.max(line.start, 0), math.max(line.rests, 0),
        math.max(line.later, 0), math.max(line.next, 0), now, ARGV[2])
      redis.call('SET', P .. 'line:' .. key, text, 'PX', string.format('%.0f', math.ceil((free - now) / 1000) + IDLE))
    end
  end
end

-- Places: in `planned` those of `next`, in `delayed` those of `later`.
local planned, delayed, gone = {}, {}, {}

local function add_place(places, member, time)
  places[#places + 1], places[#places + 2] = stamp(time), member
end

local function write_places(name, places)
  if #places == 0 then return end
  redis.call('ZADD', P .. name, unpack(places))
  local last = redis.call('ZRANGE', P .. name, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', P .. name, string.format('%.0f', math.ceil((last * 1000000 + DAY) / 1000)))
end

local function prune(name)
  local past = redis.call('ZRANGEBYSCORE', P .. name, '-inf', stamp(now - DAY), 'LIMIT', 0, PRUNED)
  if #past > 0 then redis.call('ZREM', P .. name, unpack(past)) end
end

local function read_places(name)
  local members = {}
  each(3, function(key, id) members[#members + 1] = member_of(key, id) end)
  return #members > 0 and redis.call('ZMSCORE', P .. name, unpack(members)) or {}
end

-- When a job may start, as far as actual starts say it, and the rest that its key is to have.
local function free_at(line)
  return math.max(line.start - TOLERANCE, line.rests)
end

-- The next place of a line, behind all that come before it.
local function next_place(line, name, ...)
  local time = math.max(free_at(line), line[name], now, ...)
  line[name] = time + PLACE
  line.has_changed = true
  return time
end

local granted = 0

local function answer(key, id, was_planned, was_delayed)
  local line, member = lines[key], member_of(key, id)
  local place = was_delayed or was_planned
  if place and place * 1000000 > now + TOLERANCE then return place end
  local is_first = was_delayed or (line.later <= now and (was_planned or line.next <= now))
  if is_first and free_at(line) <= now then
    if granted >= MOST then return '-' end
    granted = granted + 1
    line.start = math.max(line.start, now) + SPACING
    line.has_changed = true
    return place and '+' or ''
  end
  if place then
    local time = next_place(line, 'later')
    add_place(delayed, member, time)
    gone[#gone + 1] = member
    return stamp(time)
  end
  local time = next_place(line, 'next', line.later)
  add_place(planned, member, time)
  return stamp(time)
end

free_first(P)
if redis.call('GET', P .. 'place') ~= ARGV[2] then
  redis.call('UNLINK', P .. 'planned', P .. 'delayed')
  redis.call('SET', P .. 'place', ARGV[2])
end
read_lines()
local started = {}
each(2, function(key, id) started[#started + 1] = member_of(key, id) end)
if #started > 0 then
  redis.call('ZREM', P .. 'planned', unpack(started))
  redis.call('ZREM', P .. 'delayed', unpack(started))
end
-- A job that was refused by the far side comes back first of all, once its key has rested.
local resting = {}
each(1, function(key, seconds, id)
  local line = lines[key]
  local time = now + seconds * 1000000
  line.rests = math.max(line.rests, time)
  line.has_changed = true
  if id == '' then return end
  add_place(resting, member_of(key, id), time)
  line.later = math.max(line.later, time) + PLACE
end)
write_places('delayed', resting)

local was_planned, was_delayed = read_places('planned'), read_places('delayed')
local answers, number = {stamp(now)}, 0
each(3, function(key, id)
  number = number + 1
  answers[number + 1] = answer(key, id, was_planned[number], was_delayed[number])
end)
write_lines()
write_places('planned', planned)
write_places('delayed', delayed) -- first where it goes, then from where it was
if #gone > 0 then redis.call('ZREM', P .. 'planned', unpack(gone)) end
prune('planned')
prune('delayed')
return answers
