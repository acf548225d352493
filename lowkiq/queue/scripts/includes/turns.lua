-- Turns of the lanes (lanes.lua) in a claim: each gives an id in its turn, until there are enough. O(batch), however many
-- lanes and hints there are: so many lanes as ids are asked for are looked at, and so many hints more as may be wrong.

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
local function left_of(P, chosen, due_by, limit)
  local ids, first, last = {}, math.huge, 0
  for i, due in ipairs(redis.call('ZMSCORE', P .. 'due', unpack(chosen))) do
    if #ids < limit and tonumber(due) <= tonumber(due_by) then
      ids[#ids + 1], first, last = chosen[i], math.min(first, due), math.max(last, due)
    end
  end
  return ids, #ids, first, last
end

-- Due ids, at most `limit`: the lanes take turns, each an id. Returns also how many there are, and when the first and the
-- last of them are due. Those that were `met` before are not chosen again, as others would not be looked at like them.
local function find_fairly(P, now, limit, met)
  local due_by = stamp(now)
  if met then return left_of(P, met, due_by, limit) end
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
