--! allow-oom
-- rate: tell of jobs that are claimed and are to start whether they may, or when; and note what is said beside.
--
-- For each key it knows when jobs have started, of the last so many: another one may start once the window has passed since
-- the one that is as many before it; or a moment earlier it is told so, if its node waits. And two lines of places, for jobs
-- that may not start yet. `next` is for all that come anew: a job gets a place there, far away perhaps, and is put back to
-- the queue until then. `later` is for those that came at their time and could not start, after an outage, say, or while
-- their key was to rest: so an outage sends nobody to the end of the line. Nobody passes a line that comes before his own: a
-- job without a place starts only if nobody has one ahead.
--
-- A place is remembered until its job has started (its node says so with its next call), or its time is long past. Who asks
-- before his time is told of the same place: a repeated call changes no place; at worst a start that was granted is lost.
-- With another rate all places are forgotten, and who comes is placed anew; starts are not.
-- A node that hears too late of what is granted says by how much a start of its may come late: that one is known by the
-- latest time at which it may be, and so are those after it at least, as they may share a time (below).
-- KEYS  1 prefix of the rates of a queue
-- ARGV  1 microseconds of the window, 2 between two places, 3 by which a job may be early, 4 starts in a window, 5 how many
--       of them are known by one time (below), 6 most jobs that are to start, 7 microseconds that a node waits with jobs in
--       hand, 8 '1' if it does so for one job only, which starts alone, 9 microseconds by which a start may come late; then
--       lists, each with its length in front:
--       unused: key, the time they are known by, and how many of those did not start · to rest: key, seconds, id ('' for
--       none) of a job that comes back then · started: key, id · asked: key, id
-- returns {now, for each that is asked three: 'start' or, from a place, 'placed', when, and the time it is known by; 'wait',
--       when to come, and ''; or 'ask' again, once others have started, '' and ''}
--@ shard now stamp set_back oom
local P = KEYS[1]
local WINDOW, PLACE, EARLY = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local LIMIT, GROUP = tonumber(ARGV[4]), tonumber(ARGV[5])
local MOST, SOON, ALONE, LATE = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9])
local RATE = ARGV[1] .. '/' .. ARGV[4] .. '/' .. ARGV[5]
local KEPT = math.ceil(LIMIT / GROUP) + 1 -- times of starts
local DAY = 86400 * 1000000 -- µs for which a place is remembered once its time is past
local IDLE = 60 * 1000 -- ms for which a key is kept once it is as if it had never been
local YEARS = 2 * 366 * 86400 -- seconds for which the rate is known after the last call
local PRUNED = 2000 -- places that are forgotten at a time, at most: more than one call makes

local now = now_us()
local lists = {} -- where each list begins, and ends
local at = 10
for i, width in ipairs({3, 3, 2, 2}) do
  lists[i] = {at + 1, at + ARGV[at] * width, width}
  at = at + 1 + ARGV[at] * width
end

local function each(list, action)
  for i = lists[list][1], lists[list][2], lists[list][3] do action(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
end

-- No two jobs of no two keys have the same.
local function member_of(key, id)
  return #key .. ':' .. key .. id
end

-- What is known of the keys that are spoken of. Starts are numbered: `count` is the last one. Of a large limit only each
-- GROUP-th time is kept, so that a key takes a few kilobytes: what it says of those before it errs on the late side.
local lines, keys = {}, {}
local function know(key)
  if not lines[key] then
    lines[key] = {key = key}
    keys[#keys + 1] = key
  end
end
for _, list in ipairs({1, 2, 4}) do each(list, know) end

local function times_of(line)
  if not line.times then
    line.times = redis.call('LRANGE', P .. 'starts:' .. line.key, 0, -1)
    line.known = #line.times
    for i, time in ipairs(line.times) do line.times[i] = tonumber(time) - line.back end
  end
  return line.times
end

-- Another rate groups starts otherwise: those of a group count at its last one, those after it now.
local function regroup(line, group)
  local old, rest = times_of(line), line.count % group
  if rest > 0 then old[#old + 1] = math.max(line.latest, now) end
  local times, count = {}, 0
  for i, time in ipairs(old) do
    local before = math.floor(count / GROUP)
    count = count + (i == #old and rest > 0 and rest or group)
    for _ = 1, math.min(math.floor(count / GROUP) - before, KEPT) do times[#times + 1] = time end
  end
  line.times, line.count, line.known, line.has_changed = times, count, 0, true
  redis.call('UNLINK', P .. 'starts:' .. line.key)
end

-- The first ones are times.
local NAMES = {'rests', 'later', 'next', 'first_time', 'last', 'count', 'later_number', 'next_number', 'first_number', 'seen'}

local function read_line(line, text)
  local found = {}
  for word in string.gmatch(text or '', '%S+') do found[#found + 1] = word end
  for i, name in ipairs(NAMES) do line[name] = tonumber(found[i]) or 0 end
  line.latest = tonumber(found[12]) or 0
  -- If the clock was set back, times that lie ahead of it would for as long again.
  line.back = line.seen - now >= SET_BACK and line.seen - now or 0
  for i = 1, 5 do line[NAMES[i]] = math.max(line[NAMES[i]] - line.back, 0) end
  line.latest = math.max(line.latest - line.back, 0)
  if line.back > 0 then
    times_of(line)
    line.known = 0
    redis.call('UNLINK', P .. 'starts:' .. line.key)
  end
  if found[11] and found[11] ~= RATE then
    line.later, line.next = 0, 0
    regroup(line, tonumber(string.match(found[11], '[^/]+$')))
  end
end

local function read_lines()
  if #keys == 0 then return end
  local names = {}
  for i, key in ipairs(keys) do names[i] = P .. 'line:' .. key end
  for i, text in ipairs(redis.call('MGET', unpack(names))) do read_line(lines[keys[i]], text) end
end

local function write_lines()
  for _, key in ipairs(keys) do
    local line = lines[key]
    if line.has_changed then
      local words = {}
      for i, name in ipairs(NAMES) do words[i] = string.format('%.0f', line[name]) end
      words[10], words[11], words[12] = string.format('%.0f', now), RATE, string.format('%.0f', line.latest)
      local over = math.max(line.latest, now) + WINDOW -- when no start counts any more
      local busy = math.ceil((math.max(line.rests, line.later, line.next, over) - now) / 1000)
      -- It outlives the times, which are numbered by it.
      redis.call('SET', P .. 'line:' .. key, table.concat(words, ' '), 'PX', string.format('%.0f', busy + IDLE))
      local times, texts = line.times or {}, {}
      for i = math.max(line.known or 0, #times - KEPT) + 1, #times do texts[#texts + 1] = string.format('%.0f', times[i]) end
      if #texts > 0 then
        redis.call('RPUSH', P .. 'starts:' .. key, unpack(texts))
        redis.call('LTRIM', P .. 'starts:' .. key, -KEPT, -1)
        redis.call('PEXPIRE', P .. 'starts:' .. key, string.format('%.0f', math.ceil((over - now) / 1000)))
      end
    end
  end
end

-- When the start with that number may be, as to those that were; never before one that is granted already, for a moment
-- ahead. One that is yet to be is in a line, a window ahead.
local function free_at(line, number)
  local group = math.ceil((number - LIMIT) / GROUP)
  local ago = math.floor(line.count / GROUP) - group
  if group < 1 or ago < 0 then return math.max(line.rests, line.last) end
  local times = times_of(line)
  return math.max(line.rests, line.last, (times[#times - ago] or -WINDOW) + WINDOW)
end

local function start(line, time)
  line.count, line.last = line.count + 1, time
  line.latest = math.max(line.latest, time + LATE)
  line.has_changed = true
  if line.count % GROUP == 0 then
    local times = times_of(line)
    times[#times + 1] = line.latest
  end
end

-- Starts that were granted and did not come to be are as if they had not been granted. Of a group it is not known which of it
-- they were: so all since then count as if they were now.
local function give_back(key, time, count)
  local line, times, us = lines[key], {}, math.floor(time * 1000000 + 0.5)
  local given = GROUP > 1 and math.min(tonumber(count), line.count) or 0
  for _, known in ipairs(times_of(line)) do
    if GROUP == 1 and known == us and given < tonumber(count) then
      given = given + 1
    else
      times[#times + 1] = GROUP > 1 and known >= us and math.max(known, now) or known
    end
  end
  if GROUP > 1 then
    for _ = 1, math.floor(line.count / GROUP) - math.floor((line.count - given) / GROUP) do times[#times] = nil end
  end
  for _, name in ipairs({'count', 'later_number', 'next_number', 'first_number'}) do
    line[name] = math.max(line[name] - given, 0)
  end
  line.times, line.known, line.has_changed = times, 0, true
  redis.call('UNLINK', P .. 'starts:' .. key)
end

-- The number of the next place of a line: of the start that its job will be.
local function next_number(line, name)
  local number = name .. '_number'
  if line[name] <= now then line[number] = 0 end -- nobody is in it any more
  line[number] = math.max(line[number], line.count) + 1
  line.has_changed = true
  return line[number]
end

-- The next place behind all, be they in the other line.
local function place_in_next(line)
  local time = math.max(line.next, line.later, free_at(line, next_number(line, 'next')), now)
  line.next = time + PLACE
  return time
end

-- The next place among those who were late. They follow one another as starts did, a window later, and not at an even pace:
-- else each pause of the past would be had once more. Those behind them, of whose forerunners nothing is known yet, do, as
-- fast as jobs have started of late: on a machine that is too busy for its rate they would come too early again and again.
local function place_in_later(line)
  local is_first, number = line.later <= now, next_number(line, 'later')
  local time = math.max(line.later, free_at(line, number), now)
  if is_first then line.first_number, line.first_time = number, time end
  local further = number - line.first_number - LIMIT
  if further >= 0 then
    local times = times_of(line)
    local took = #times >= KEPT - 1 and now - times[#times - KEPT + 2] or 0 -- for as many starts
    took = math.max(PLACE * LIMIT, math.min(took, WINDOW * 1.25))
    time = math.max(time, line.first_time + took + further * took / LIMIT)
  end
  line.later = time + PLACE / 4
  return time
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
  redis.call('PEXPIRE', P .. name, string.format('%.0f', math.ceil((last * 1000000 + DAY - now) / 1000)))
end

local function read_places(name)
  local members = {}
  each(4, function(key, id) members[#members + 1] = member_of(key, id) end)
  return #members > 0 and redis.call('ZMSCORE', P .. name, unpack(members)) or {}
end

local function prune(name)
  local past = redis.call('ZRANGEBYSCORE', P .. name, '-inf', stamp(now - DAY), 'LIMIT', 0, PRUNED)
  if #past > 0 then redis.call('ZREM', P .. name, unpack(past)) end
end

local granted = 0

local function may_start(line, was_planned, was_delayed)
  return was_delayed or (line.later <= now and (was_planned or line.next <= now))
end

local function answer(key, id, was_planned, was_delayed)
  local line, member = lines[key], member_of(key, id)
  local place = was_delayed or was_planned
  if place and place * 1000000 > now + EARLY then return 'wait', place, '' end
  local time = math.max(free_at(line, line.count + 1), now)
  if time <= now + SOON and may_start(line, was_planned, was_delayed) then
    local is_alone = ALONE and time > now
    if granted >= MOST or is_alone and granted > 0 then
      granted = MOST -- in their order
      return 'ask', '', ''
    end
    granted = is_alone and MOST or granted + 1
    start(line, time)
    return place and 'placed' or 'start', stamp(time), stamp(line.latest)
  end
  if place then
    time = place_in_later(line)
    add_place(delayed, member, time)
    gone[#gone + 1] = member
  else
    time = place_in_next(line)
    add_place(planned, member, time)
  end
  return 'wait', stamp(time), ''
end

free_first(P)
if redis.call('SET', P .. 'rate', RATE, 'EX', YEARS, 'GET') ~= RATE then
  redis.call('UNLINK', P .. 'planned', P .. 'delayed')
end
read_lines()
each(1, give_back)
local started = {}
each(3, function(key, id) started[#started + 1] = member_of(key, id) end)
if #started > 0 then
  redis.call('ZREM', P .. 'planned', unpack(started))
  redis.call('ZREM', P .. 'delayed', unpack(started))
end
-- A job that was refused by the far side comes back first of all, once its key has rested.
local resting = {}
each(2, function(key, seconds, id)
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
each(4, function(key, id)
  number = number + 1
  local word, time, known = answer(key, id, was_planned[number], was_delayed[number])
  answers[number * 3 - 1], answers[number * 3], answers[number * 3 + 1] = word, time, known
end)
write_lines()
write_places('delayed', delayed) -- first where it goes, then from where it was
write_places('planned', planned)
if #gone > 0 then redis.call('ZREM', P .. 'planned', unpack(gone)) end
prune('planned')
prune('delayed')
return answers
