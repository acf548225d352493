-- Ids that are due and may not be claimed now are parked, each at most once until that is over.

--- parked
-- What is queued for an id that runs in another claim is parked when a claim meets it: it waits behind that run. `behind`
-- has when it was due; in `due` it is at inf, where no claim meets it again, and its record is in full. So an id whose run
-- is over is unparked, before it leaves its claim. That was set aside by then: nothing waits behind the newest one.
local has_parked

local function is_any_parked(P)
  if has_parked == nil then has_parked = redis.call('EXISTS', P .. 'behind') == 1 end
  return has_parked
end

--- park
--@ payloads get
-- Parks those of these ids that are stopped, be it by their run, each at most once a run.
local function park(P, ids, count, stopped)
  local parked = {}
  for i = 1, count do
    if stopped[ids[i]] then parked[#parked + 1] = ids[i] end
  end
  local due = redis.call('ZMSCORE', P .. 'due', unpack(parked))
  local held = redis.call('HMGET', P .. 'payloads', unpack(parked))
  local behind, later, full = {}, {}, {}
  for i, id in ipairs(parked) do
    behind[i * 2 - 1], behind[i * 2] = id, due[i]
    later[i * 2 - 1], later[i * 2] = 'inf', id
    if held[i] and is_compact(held[i]) then
      full[#full + 1], full[#full + 2] = id, due[i] .. ':' .. string.sub(held[i], 5)
    end
  end
  redis.call('HSET', P .. 'behind', unpack(behind))
  if #full > 0 then redis.call('HSET', P .. 'payloads', unpack(full)) end
  redis.call('ZADD', P .. 'due', unpack(later))
end

--- unpark
--@ shard stamp
--@ parking parked
--@ lanes hint
-- What waits behind these ids is due again, at its own time, unless it is held. That was due, so it is not ahead of a clock
-- set back since. Returns when the first is, if any is, in microseconds.
local function unpark(P, now, ids)
  if not is_any_parked(P) then return math.huge end
  local found = redis.call('HMGET', P .. 'behind', unpack(ids))
  local held = redis.call('ZMSCORE', P .. 'held', unpack(ids)) -- holding.lua
  local due, parked, earliest = {}, {}, math.huge
  for i, id in ipairs(ids) do
    if found[i] and not held[i] then
      due[#due + 1] = tonumber(found[i]) > now / 1000000 and stamp(now) or found[i]
      due[#due + 1] = id
      parked[#parked + 1] = id
      earliest = math.min(earliest, due[#due - 1] * 1000000)
    end
  end
  if #parked == 0 then return earliest end
  redis.call('ZADD', P .. 'due', unpack(due))
  redis.call('HDEL', P .. 'behind', unpack(parked))
  for i, id in ipairs(parked) do hint(P, id, due[i * 2 - 1]) end
  return earliest
end
