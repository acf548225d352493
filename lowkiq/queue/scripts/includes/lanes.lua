-- Fair shares of tenants (fair_by): a backlog of one delays the next job of another by no more than that one's share.
--
-- `due` stays the truth: whatever counts, parks, moves or deletes ids asks it alone. Beside it there are hints: `tenants`
-- has the tenant of an id, for as long as that is queued, claimed or in the morgue; lane:<tenant> the queued ids of a tenant
-- by when they are due; `lanes` the tenants of which something is due, each with its turn, which is how much it has had; and
-- `lanes_later` those that take no turns yet, by when something of them is due. A lane that begins, or is due again, gets
-- the turn of whoever is next: nobody saves turns up.
--
-- Hints may be missing or wrong: what a lane says is looked up in `due`, and what is wrong is put right. And the queue itself, '', has turns like a tenant: those are for the oldest ids of
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
-- Queued ids have got tenants by a push: it has `count` jobs of so many words, the first of which, words[at] and so on, are
-- their ids, and those at `place` behind them their tenants. The last one of an id counts.
local function join_lanes(P, words, at, count, width, place)
  local ids, tenants = {}, {}
  for word = at, at + (count - 1) * width, width do
    local id, tenant = words[word], words[word + place]
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
-- Nothing is queued nor claimed: drops the first of the hints that are left.
local function drop_lanes(P)
  for _, name in ipairs({'lanes', 'lanes_later'}) do
    for _, tenant in ipairs(redis.call('ZRANGE', P .. name, 0, 199)) do
      redis.call('UNLINK', P .. 'lane:' .. tenant)
      close_lane(P, tenant)
    end
  end
  local left, ids = redis.call('HSCAN', P .. 'tenants', '0', 'COUNT', 200)[2], {}
  for i = 1, math.min(#left, 4000), 2 do ids[#ids + 1] = left[i] end
  forget_tenants(P, ids)
end
