--! allow-oom
-- claim: take due jobs, oldest first, out of the queue and into a claim. It may be made beside others of its owner's: then
-- ids that run in those are parked (parking.lua), for an id is in one claim at most (I4). One without others that finds
-- nothing stays open (push.lua).
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of this claim, 4 layout, 5 most jobs, 6 most payloads of a job, 7 most payloads in
--       all (its last job may exceed it), 8 most bytes (its last payload may), 9 numbers of the owner's claims of the
--       shard, in hand or on their way, each with a space before and after it; '' for none, and if it is to stay closed, as a job needs a place before it
--       runs (places.lua), a 10th
-- returns {now, next due or '', {for each job: id, its record in the claim (claimed.lua), or of several payloads
--       {"perform_in:retry_count", payload, score, payload, score ...}}, when the last one is due, in microseconds; then
--       if it is a suspect, {its `crowds` (deaths.lua), from 1 to 16}; and if any has a checkpoint, or
--       tags, after those, or {}: {id, what is kept (claimed.lua), id, ...}; and if any has tags: {id, tags (tags.lua),
--       id, ...}}
-- errors: FENCED, LAYOUT, NEWER, STALE (this number, or a later one, was claimed or given up), PAUSED (pausing.lua; or
--       moving.lua),
--       UNSETTLED (with the number of a claim that its owner does not know of)

local FIRST_STEP, LAST_STEP = 4, 32 -- payloads read at a time: a thousand large ones are not, before the bytes are full
-- Most claims end here, before any function is made.
--@ quick_claim compact

--@ shard clock owner layout
--@ set_back follow_clock_back
--@ bell oldest_due
--@ payloads get span fold zadd
--@ claimed running set_aside
--@ passing by
--@ fewer spaced start
--@ notes note

local FEW = 16 -- jobs that a claim of few looks at

local function known(due)
  return due ~= 'inf' and due or ''
end

-- The ids of due jobs, oldest first; how many there are; when the first and the last of them are due; and, if it was
-- seen, when the next one is ('' for none). A queue that holds few is read once for all.
local function find_due(P, now, limit)
  local due_by, most = stamp(now), math.min(limit, FEW)
  local found = redis.call('ZRANGE', P .. 'due', 0, most, 'WITHSCORES')
  local count = math.min(#found / 2, most)
  while count > 0 and tonumber(found[count * 2]) > tonumber(due_by) do count = count - 1 end
  if count == most and count < limit then
    local ids = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', due_by, 'LIMIT', 0, limit)
    return ids, #ids, found[2], redis.call('ZSCORE', P .. 'due', ids[#ids]), nil
  end
  local ids = {}
  for i = 1, count do ids[i] = found[i * 2 - 1] end
  return ids, count, found[2], found[count * 2], known(found[count * 2 + 2] or '')
end

-- A suspect (deaths.lua) has a claim of its own, since it has a process of its own. Returns how many are taken of these
-- ids, and of a suspect its deaths.
local function part_suspects(P, ids, count)
  local crowds = redis.call('HMGET', P .. 'crowds', unpack(ids, 1, count))
  if crowds[1] then return 1, crowds[1] end
  local taken = 1
  while taken < count and not crowds[taken + 1] do taken = taken + 1 end
  return taken, nil
end

-- The claim's record of a single payload, as text.
local function spell(record, head, perform_in)
  if is_compact(record) then record = perform_in .. ':' .. string.sub(record, 5) end
  return head .. ':' .. record
end

-- The lowest payloads of an id, with their scores, up to most, or most bytes; and their bytes.
local function read_lowest(source, most, most_bytes)
  local lowest, bytes, step = {}, 0, FIRST_STEP
  while true do
    local page = redis.call('ZRANGE', source, #lowest / 2, #lowest / 2 + step - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      lowest[#lowest + 1], lowest[#lowest + 2] = page[i], page[i + 1]
      bytes = bytes + #page[i]
      if #lowest / 2 >= most or bytes >= most_bytes then return lowest, bytes end
    end
    if #page == 0 then return lowest, bytes end
    step = math.min(step * 2, LAST_STEP)
  end
end

-- Queues without tenants need nothing of this, and make none of it.
local function by_lanes()
--@ turns claim
  return {
    find = find_fairly,
    move = move_hints,
    serve = serve_lanes,
  }
end

local P, node, epoch, number, layout = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, max_payloads = tonumber(ARGV[5]), tonumber(ARGV[6])
local max_in_all, max_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])
local refusal, last_claim = fence(P, node, epoch)
if refusal then return refusal end
local layout_refusal, _, last_score, seen = check_layout(P, layout)
if layout_refusal then return layout_refusal end
if tonumber(number) <= last_claim then return refuse('STALE', 'claim ' .. last_claim .. ' came later') end
-- Rare ones; one command tells that there is none of them.
local has_rare = redis.call('EXISTS', P .. 'checkpoints', HINDERS.claim) > 0
if has_rare and redis.call('EXISTS', P .. 'paused', P .. 'feeders') > 0 then return refuse('PAUSED', 'nothing is claimed') end
local has_others = has_rare and redis.call('EXISTS', P .. 'claim', P .. 'asides') > 0
local others = has_others and claims_in_hand(P, last_claim) or {}
for _, claim in ipairs(others) do
  local is_known = claim.epoch or string.find(ARGV[9], ' ' .. claim.number .. ' ', 1, true) -- away.lua
  if not is_known then return refuse('UNSETTLED', claim.number) end
end
local has_crowds = has_rare and redis.call('EXISTS', P .. 'crowds') == 1
local has_retries = has_rare and redis.call('EXISTS', P .. 'retries') == 1
-- Whose id has one has run before: its record is in full.
local has_checkpoints = has_rare and redis.call('EXISTS', P .. 'checkpoints') == 1

local now = shard_now(P, last_score)
local has_lanes = has_rare and redis.call('EXISTS', P .. 'lanes', P .. 'lanes_later') > 0
local lanes = has_lanes and by_lanes()
local find = lanes and lanes.find or find_due
-- The last claim is open no more. (It comes first, since it frees: so claims go on when memory is full.)
redis.call('HDEL', P .. 'owner', 'open')
if tonumber(last_score) > now then
  local moved = follow_clock_back(P, now, tonumber(last_score), seen)
  if lanes then lanes.move(P, moved) end
end
local ids, count, first, last, next_due = find(P, now, limit)
local running = has_others and count > 0 and ids_of(others) or {} -- few: what lasts is one batch
if has_others then set_aside(P, last_claim, number) end
local has_held = has_rare and redis.call('EXISTS', P .. 'held') == 1
local clock = has_rare and now_us()
local has_spaced = has_rare and is_any_spaced(P, clock)
if count > 0 and (has_others or has_held or has_spaced) then
  local why = {running = running, has_held = has_held, has_spaced = has_spaced}
  ids, count, first, last, next_due = find_free(P, find, now, limit, clock, why, {ids, count, first, last, next_due})
end
if count == 0 then
  next_due = next_due or known(redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or '')
  local marks = {'claim', number}
  -- There may be more to do, where all that it looked at was parked.
  if next_due == '' or tonumber(next_due) > tonumber(stamp(now)) then
    marks[3], marks[4] = 'waiting', next_due == '' and 'inf' or next_due
  end
  local is_open = not (has_others or has_held or has_spaced or ARGV[10])
  if is_open then marks[5], marks[6] = 'open', epoch .. ' ' .. number end
  redis.call('HSET', P .. 'owner', unpack(marks))
  return {stamp(now), next_due, {}, '0'}
end
local crowds
if has_crowds then count, crowds = part_suspects(P, ids, count) end
-- Compact records tell when they are due by this (payloads.lua); how many are due too long before it for that?
local last_due = math.floor(math.max(last, 0) * 1000000 + 0.5)
local last_due_text = string.format('%.0f', last_due)
local old = 0
if last - first >= SPAN / 1000000 then old = lanes and count or redis.call('ZCOUNT', P .. 'due', '-inf', stamp(last_due - SPAN)) end
redis.call('HSET', P .. 'owner', 'claim', number, 'last_due', last_due_text)
-- What is claimed, as an id, its record, the next id ...; and what is returned of an id with several payloads, by the
-- place of its record.
local found, several, to_move, stays, kept = {}, {}, {}, {}, {}
local taken, claimed, staying, bytes, payloads = 0, 0, 0, 0, 0

-- Gives "perform_in:retry_count" of any of these ids, and perform_in; asked for once, if one of them needs it.
local function head_reader(from, to)
  local due, retries
  return function(i)
    due = due or redis.call('ZMSCORE', P .. 'due', unpack(ids, from, to))
    retries = retries or has_retries and redis.call('ZMSCORE', P .. 'retries', unpack(ids, from, to)) or {}
    return due[i] .. ':' .. (retries[i] or '-1'), due[i]
  end
end

-- At most max_payloads of an id that has several: the record, and what is returned if it is not that.
local function read_several(id, head)
  local lowest, its_bytes = read_lowest(P .. 'payloads:' .. id, max_payloads, max_bytes - bytes)
  bytes, payloads = bytes + its_bytes, payloads + #lowest / 2
  to_move[#to_move + 1] = {id, head, lowest}
  if #lowest == 2 then return head .. ':' .. lowest[2] .. ':' .. lowest[1] end
  return head .. ':*', lowest
end

-- Moves these into the claim. For payloads that stay behind, the id keeps its place in the queue.
local function move_several(id, head, lowest)
  local source, target = P .. 'payloads:' .. id, P .. 'claim:' .. id
  if redis.call('ZCARD', source) <= #lowest / 2 then
    redis.call('RENAME', source, target)
  else
    if #lowest > 2 then zadd_all(target, lowest, 'GT') end
    redis.call('ZREMRANGEBYRANK', source, 0, #lowest / 2 - 1)
    payloads_fold(P .. 'payloads', id)
    stays[id] = true
    staying = staying + 1
  end
  table.insert(lowest, 1, head)
end

local step = FIRST_STEP
while taken < count and bytes < max_bytes and payloads < max_in_all do
  local to = math.min(taken + step, count)
  step = math.min(step * 2, LAST_STEP)
  local held = redis.call('HMGET', P .. 'payloads', unpack(ids, taken + 1, to))
  local checkpoints = has_checkpoints and redis.call('HMGET', P .. 'checkpoints', unpack(ids, taken + 1, to)) or {}
  local read_head = head_reader(taken + 1, to)
  for i = 1, #held do
    if bytes >= max_bytes or payloads >= max_in_all then break end
    taken = taken + 1
    local id, record = ids[taken], held[i]
    if record and checkpoints[i] then
      kept[#kept + 1], kept[#kept + 2] = id, checkpoints[i]
      bytes = bytes + #checkpoints[i]
    end
    if record then
      found[claimed + 1] = id
      claimed = claimed + 2
      if record == '*' then
        found[claimed], several[claimed] = read_several(id, (read_head(i)))
      else
        found[claimed] = taken > old and is_compact(record) and record or spell(record, read_head(i))
        bytes = bytes + #record
        payloads = payloads + 1
      end
    end
  end
end

-- First into the claim, then out of the queue: a user who lacks the right to one of these loses no job.
if claimed > 0 then redis.call('RPUSH', P .. 'claim', unpack(found, 1, claimed)) end
for _, several_of_one in ipairs(to_move) do move_several(unpack(several_of_one)) end
if has_retries then redis.call('ZREM', P .. 'retries', unpack(ids, 1, taken)) end
if staying == 0 and not lanes then
  -- What was taken is the lowest of the index, so a range by rank does for all of it at once.
  redis.call('ZREMRANGEBYRANK', P .. 'due', 0, taken - 1)
  redis.call('HDEL', P .. 'payloads', unpack(ids, 1, taken))
elseif staying < taken then
  local gone = {}
  for i = 1, taken do
    if not stays[ids[i]] then gone[#gone + 1] = ids[i] end
  end
  redis.call('ZREM', P .. 'due', unpack(gone))
  redis.call('HDEL', P .. 'payloads', unpack(gone))
end
if lanes then lanes.serve(P, now, ids, taken, stays) end

-- The tags of what is taken; what stays behind keeps them, too.
local tagged = {}
if has_rare and claimed > 0 and redis.call('EXISTS', P .. 'tags') == 1 then
  for first = 1, claimed, 2 * LAST_STEP do
    local some = {}
    for i = first, math.min(first + 2 * LAST_STEP, claimed) - 1, 2 do some[#some + 1] = found[i] end
    for i, tags in ipairs(redis.call('HMGET', P .. 'tags', unpack(some))) do
      if tags then
        redis.call('HSET', P .. 'claimed_tags', some[i], tags)
        if not stays[some[i]] then redis.call('HDEL', P .. 'tags', some[i]) end
        tagged[#tagged + 1], tagged[#tagged + 2] = some[i], tags
      end
    end
  end
end

if has_rare and claimed > 0 and redis.call('EXISTS', P .. 'rules', P .. 'debounced') > 0 then
  local started = {}
  for i = 1, claimed, 2 do started[#started + 1] = found[i] end
  note_starts(P, started, clock)
end

if has_rare and is_noting(P) then
  for i = 1, claimed, 2 do note(P, 'started', found[i], node) end
end

if claimed == 0 then
  next_due = oldest_due(P, now)
elseif taken < count or staying > 0 or not next_due then
  next_due = known(redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or '')
end
for position, payloads_of_one in pairs(several) do found[position] = payloads_of_one end
local deaths = crowds and {math.min(math.max(tonumber(crowds) or 1, 1), FEW)}
if #tagged > 0 then return {stamp(now), next_due, found, last_due_text, deaths or {}, kept, tagged} end
if #kept > 0 then return {stamp(now), next_due, found, last_due_text, deaths or {}, kept} end
return {stamp(now), next_due, found, last_due_text, deaths}
