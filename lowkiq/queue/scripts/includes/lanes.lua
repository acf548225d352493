-- Fair shares of tenants (fair_by): a backlog of one delays the next job of another by no more than that one's share.
--
-- `due` stays the truth: whatever counts, parks, moves or deletes ids asks it alone. Beside it there are hints: `tenants`
-- has the tenant of an id, for as long as that is queued, claimed or in the morgue; lane:<tenant> the queued ids of a tenant
-- by when they are due; `lanes` the tenants of which something is due, each with its turn, which is how much it has had; and
-- `lanes_later` those that take no turns yet, by when something of them is due. A lane that begins, or is due again, gets
-- the turn of whoever is next: nobody saves turns up.
--
-- Hints may be missing or wrong, as those of an older Lowkiq's producers and nodes are: what a lane says is looked up in
-- `due`, and what is wrong is put right. And the queue itself, '', has turns like a tenant: those are for the oldest ids of
-- `due`, be they in a lane or not. They count for their tenant, too, so that it gets no more by them. So a wrong hint costs
-- a share for a while, never a job. When the last lane is gone, '' goes with it.

--- known
local fair = {} -- by shard

--- any
--@ lanes known
local function is_fair(P)
  if fair[P] == nil then fair[P] = redis.call('EXISTS', P .. 'tenants') == 1 end
  return fair[P]
end

--- close
-- A lane that has come down to nothing is gone.
local function close_lane(P, tenant)
  if redis.call('EXISTS', P .. 'lane:' .. tenant) == 1 then return end
  redis.call('ZREM', P .. 'lanes_later', tenant)
  redis.call('ZREM', P .. 'lanes', tenant)
  local is_last = redis.call('ZCARD', P .. 'lanes') <= 1 and redis.call('EXISTS', P .. 'lanes_later') == 0
  if is_last then redis.call('ZREM', P .. 'lanes', '') end
end

--- leave
--@ lanes close
-- Ids are in the lane of their tenant no more.
local function leave_lane(P, tenant, ids)
  redis.call('ZREM', P .. 'lane:' .. tenant, unpack(ids))
  close_lane(P, tenant)
end

--- enter
-- Ids are in the lane of their tenant, each behind when it is due.
local function enter_lane(P, tenant, hints)
  redis.call('ZADD', P .. 'lane:' .. tenant, unpack(hints))
  if redis.call('ZSCORE', P .. 'lanes', tenant) then return end
  local first = redis.call('ZRANGE', P .. 'lane:' .. tenant, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', P .. 'lanes_later', first, tenant)
end

--- hint
--@ claimed never
--@ lanes any enter
-- A queued id is due then. What waits for its own run, or for a person, has no hint until that is over.
local function hint(P, id, at)
  local tenant = is_fair(P) and tonumber(at) < tonumber(NEVER) and redis.call('HGET', P .. 'tenants', id)
  if tenant then enter_lane(P, tenant, {at, id}) end
end

--- join
--@ claimed never
--@ lanes known enter leave
-- Queued ids have got tenants by a push: it has `count` jobs of so many words, the first of which, ARGV[at] and so on, are
-- their ids, and the last ones tenants. The last one of an id counts.
local function join_lanes(P, at, count, width)
  local ids, tenants = {}, {}
  for word = at, at + (count - 1) * width, width do
    local id, tenant = ARGV[word], ARGV[word + width - 1]
    if tenant ~= '' then
      if not tenants[id] then ids[#ids + 1] = id end
      tenants[id] = tenant
    end
  end
  if #ids == 0 then return end
  fair[P] = true
  local before, due = redis.call('HMGET', P .. 'tenants', unpack(ids)), redis.call('ZMSCORE', P .. 'due', unpack(ids))
  local new, lanes = {}, {}
  for i, id in ipairs(ids) do
    local tenant = tenants[id]
    if before[i] ~= tenant then
      new[#new + 1], new[#new + 2] = id, tenant
      if before[i] then leave_lane(P, before[i], {id}) end
    end
    if due[i] and tonumber(due[i]) < tonumber(NEVER) then
      local hints = lanes[tenant] or {}
      hints[#hints + 1], hints[#hints + 2] = due[i], id
      lanes[tenant] = hints
    end
  end
  if #new > 0 then redis.call('HSET', P .. 'tenants', unpack(new)) end
  for tenant, hints in pairs(lanes) do enter_lane(P, tenant, hints) end
end

--- again
--@ lanes known
-- An id is back, and with it its tenant, unless it has got one since.
local function tenant_again(P, id, tenant)
  redis.call('HSETNX', P .. 'tenants', id, tenant)
  fair[P] = true
end

--- forget
--@ lanes any
-- None of these ids is claimed: forgets the tenants of those that are not in the queue, nor in the morgue.
local function forget_tenants(P, ids)
  if #ids == 0 or not is_fair(P) then return end
  local due, dead = redis.call('ZMSCORE', P .. 'due', unpack(ids)), redis.call('ZMSCORE', P .. 'morgue', unpack(ids))
  local gone = {}
  for i, id in ipairs(ids) do
    if not due[i] and not dead[i] then gone[#gone + 1] = id end
  end
  if #gone > 0 then redis.call('HDEL', P .. 'tenants', unpack(gone)) end
end

--- drop
--@ lanes any leave
-- An id has left the queue otherwise than by a claim.
local function drop_hint(P, id)
  local tenant = is_fair(P) and redis.call('HGET', P .. 'tenants', id)
  if tenant then leave_lane(P, tenant, {id}) end
end

--- left
--@ lanes forget close
-- Nothing is queued nor claimed: drops the first of what an older Lowkiq has left.
local function drop_lanes(P)
  for _, name in ipairs({'lanes', 'lanes_later'}) do
    for _, tenant in ipairs(redis.call('ZRANGE', P .. name, 0, 999)) do
      redis.call('UNLINK', P .. 'lane:' .. tenant)
      close_lane(P, tenant)
    end
  end
  local left, ids = redis.call('HSCAN', P .. 'tenants', '0', 'COUNT', 1000)[2], {}
  for i = 1, math.min(#left, 4000), 2 do ids[#ids + 1] = left[i] end
  forget_tenants(P, ids)
end

--- claim
--@ shard stamp
--@ claimed never
--@ lanes close enter
local WOKEN = 100 -- lanes that a claim of few lets take turns, at least
local PAGE = 4 -- ids of a lane that are read at a time, at least
local LOOKS = 4 -- hints that a claim looks at, at most, for each job that it may take

-- Lanes of which something is due by now take turns from here on.
local function wake_lanes(P, due_by, limit)
  local woken = redis.call('ZRANGEBYSCORE', P .. 'lanes_later', '-inf', due_by, 'LIMIT', 0, math.max(limit, WOKEN))
  if #woken == 0 then return end
  local turn = redis.call('ZRANGE', P .. 'lanes', 0, 0, 'WITHSCORES')[2] or '0'
  local turns = {turn, ''}
  for _, tenant in ipairs(woken) do turns[#turns + 1], turns[#turns + 2] = turn, tenant end
  redis.call('ZADD', P .. 'lanes', 'NX', unpack(turns))
  redis.call('ZREM', P .. 'lanes_later', unpack(woken))
end

-- A lane takes no turns while nothing of it is due.
local function rest_lane(P, tenant, due_by)
  local first = redis.call('ZRANGE', P .. 'lane:' .. tenant, 0, 0, 'WITHSCORES')[2]
  if not first then return close_lane(P, tenant) end
  if tonumber(first) <= tonumber(due_by) then return end
  redis.call('ZADD', P .. 'lanes_later', first, tenant)
  redis.call('ZREM', P .. 'lanes', tenant)
end

-- The lanes whose turns come first, the queue's last of those with the same turn.
local function first_lanes(P, limit)
  local found, lanes = redis.call('ZRANGE', P .. 'lanes', 0, limit, 'WITHSCORES'), {}
  local own = {tenant = '', key = P .. 'due', turn = tonumber(found[#found] or 0)}
  for i = 1, #found, 2 do
    if found[i] == '' then own.turn = tonumber(found[i + 1]) end
    if found[i] ~= '' then
      lanes[#lanes + 1] = {tenant = found[i], key = P .. 'lane:' .. found[i], turn = tonumber(found[i + 1])}
    end
  end
  lanes[#lanes + 1] = own
  table.sort(lanes, function(a, b) return a.turn < b.turn or a.turn == b.turn and a.tenant ~= '' and b.tenant == '' end)
  for _, lane in ipairs(lanes) do lane.ids, lane.due, lane.at, lane.next, lane.begin = {}, {}, 0, 1, lane.turn end
  return lanes
end

-- The due ids of a page of a lane, and when each is due. Hints that are wrong are put right.
local function check_hints(P, lane, ids, due_by)
  if #ids == 0 then return {}, {} end
  local due, right, when, gone = redis.call('ZMSCORE', P .. 'due', unpack(ids)), {}, {}, {}
  for i, id in ipairs(ids) do
    local at = tonumber(due[i] or NEVER)
    if at <= tonumber(due_by) then
      right[#right + 1], when[#when + 1] = id, at
    elseif at < tonumber(NEVER) then
      redis.call('ZADD', lane.key, due[i], id)
    else
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then redis.call('ZREM', lane.key, unpack(gone)) end
  return right, when
end

local function read_page(P, lane, page, due_by)
  local found = redis.call('ZRANGE', lane.key, lane.at, lane.at + page - 1, 'WITHSCORES')
  local ids, when = {}, {}
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) <= tonumber(due_by) then ids[#ids + 1], when[#when + 1] = found[i], tonumber(found[i + 1]) end
  end
  lane.is_read = #ids < page
  if lane.tenant == '' then
    lane.tenants = #ids > 0 and redis.call('HMGET', P .. 'tenants', unpack(ids)) or {}
  else
    ids, when = check_hints(P, lane, ids, due_by)
  end
  lane.ids, lane.due, lane.at, lane.next = ids, when, lane.at + #ids, 1
  return #found / 2
end

-- What a claim has chosen: the tenant of each id; and those which were the queue's own turn.
local tenant_of, is_oldest = {}, {}

-- Those of the ids that were chosen which are due still.
local function left_of(P, chosen, due_by)
  local ids, first, last = {}, math.huge, 0
  for i, due in ipairs(redis.call('ZMSCORE', P .. 'due', unpack(chosen))) do
    if tonumber(due) <= tonumber(due_by) then
      ids[#ids + 1], first, last = chosen[i], math.min(first, due), math.max(last, due)
    end
  end
  return ids, #ids, first, last
end

-- Due ids, at most `limit`: the lanes take turns, each an id. Returns also how many there are, and when the first and the
-- last of them are due. Those that were `met` before are not chosen again, as others would not be looked at like them.
local function find_fairly(P, now, limit, met)
  local due_by = stamp(now)
  if met then return left_of(P, met, due_by) end
  wake_lanes(P, due_by, limit)
  local lanes, lane_of = first_lanes(P, limit), {}
  for _, lane in ipairs(lanes) do lane_of[lane.tenant] = lane end
  local page, looks = math.max(math.ceil(limit / #lanes), PAGE), LOOKS * limit + WOKEN
  local ids, chosen, first, last = {}, {}, math.huge, 0
  tenant_of, is_oldest = {}, {}

  -- The place of the next id in what was read of a lane; nil if it has none.
  local function next_of(lane)
    while true do
      while lane.next <= #lane.ids and chosen[lane.ids[lane.next]] do lane.next = lane.next + 1 end
      if lane.next <= #lane.ids then return lane.next end
      if lane.is_read or looks <= 0 and lane.tenant ~= '' then return nil end
      looks = looks - read_page(P, lane, page, due_by)
    end
  end

  local function take(lane, place)
    local id, due, tenant = lane.ids[place], lane.due[place], lane.tenant
    if tenant == '' then
      tenant, is_oldest[id] = lane.tenants[place] or '', true
      -- It counts for its lane, too.
      if tenant ~= '' and lane_of[tenant] then lane_of[tenant].turn = lane_of[tenant].turn + 1 end
    end
    ids[#ids + 1], chosen[id], tenant_of[id] = id, true, tenant
    first, last = math.min(first, due), math.max(last, due)
    lane.turn, lane.has_any = lane.turn + 1, true
  end

  local active, following, turn = {}, 1, lanes[1].turn
  while #ids < limit and (#active > 0 or following <= #lanes) do
    if #active == 0 then turn = math.max(turn, lanes[following].begin) end
    while following <= #lanes and lanes[following].begin <= turn do
      active[#active + 1], following = lanes[following], following + 1
    end
    local left = {}
    for _, lane in ipairs(active) do
      local place = #ids < limit and lane.turn <= turn and next_of(lane)
      if place then take(lane, place) end
      if place ~= nil then
        left[#left + 1] = lane
      elseif lane.tenant ~= '' and not lane.has_any then
        rest_lane(P, lane.tenant, due_by)
      end
    end
    active, turn = left, turn + 1
  end
  return ids, #ids, first, last
end

-- What was due before the clock was set back has been moved.
local function move_hints(P, moved)
  for i = 1, #moved, 2 do
    local tenant = redis.call('HGET', P .. 'tenants', moved[i + 1])
    if tenant then enter_lane(P, tenant, {moved[i], moved[i + 1]}) end
  end
end

-- The first of these ids were taken: their lanes have had so many turns. What stays in the queue stays in its lane.
local function serve_lanes(P, now, ids, taken, stays)
  local had, gone, own = {}, {}, 0
  for i = 1, taken do
    local id, tenant = ids[i], tenant_of[ids[i]]
    if is_oldest[id] then own = own + 1 end
    if tenant ~= '' then
      had[tenant], gone[tenant] = (had[tenant] or 0) + 1, gone[tenant] or {}
      if not stays[id] then table.insert(gone[tenant], id) end
    end
  end
  if own > 0 then redis.call('ZADD', P .. 'lanes', 'XX', 'INCR', own, '') end
  for tenant, turns in pairs(had) do
    redis.call('ZADD', P .. 'lanes', 'XX', 'INCR', turns, tenant)
    if #gone[tenant] > 0 then redis.call('ZREM', P .. 'lane:' .. tenant, unpack(gone[tenant])) end
    rest_lane(P, tenant, stamp(now))
  end
end
