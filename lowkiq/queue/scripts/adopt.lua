-- adopt: take some of what an old shard held into a new one (moving.lua). What was pushed here since merges as a push to a
-- queued id does: the payloads are united, and the rest is what it was there. Repeating it changes nothing.
-- KEYS  1 prefix of the new shard
-- ARGV  1 layout, 2 index of the old shard, 3 epoch of its mover, 4 what it is (pack.lua), then the words of its rows
-- returns how many rows   errors: LAYOUT, NEWER, RESHARDED, FENCED (a later mover is known, or all has come)
--@ moving feeder sides
--@ payloads kind split get add fold zadd_lowest bulk_write
--@ tags add
local P, what = KEYS[1], ARGV[4]
local refusal = check_feeder(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
local width = (what == 'due' or what == 'morgue' or what == 'tracks' or string.sub(what, -8) == 'payloads') and 3 or 2
local count = (#ARGV - 4) / width

local function word(row, place) return ARGV[4 + (row - 1) * width + place] end

-- An id that is here already.
local function merge(payloads, id, at, record)
  if record == '*' then
    payloads_fold(payloads, id)
  elseif record ~= '' then
    if is_compact(record) then record = at .. ':' .. string.sub(record, 5) end
    payloads_add(payloads, id, split(record))
  end
end

local function adopt_jobs(index, payloads)
  local ids, due, records = {}, {}, {}
  for row = 1, count do ids[row] = word(row, 1) end
  local known = redis.call('HMGET', P .. payloads, unpack(ids))
  for row, id in ipairs(ids) do
    local at, record = word(row, 2), word(row, 3)
    if known[row] then
      merge(P .. payloads, id, at, record)
      -- Where both are dead the later death is told of.
      if index == 'morgue' then
        redis.call('ZADD', P .. index, 'GT', at, id)
      else
        redis.call('ZADD', P .. index, at, id)
      end
    elseif record ~= '*' and record ~= '' then -- else somebody has deleted it meanwhile
      due[#due + 1], due[#due + 2] = at, id
      records[#records + 1], records[#records + 2] = id, record
    end
  end
  if #due == 0 then return end
  bulk_zadd(P .. index, due, #due)
  bulk_hset(P .. payloads, records, #records)
end

local function adopt_payloads(payloads)
  local of = {}
  for row = 1, count do
    local id = word(row, 1)
    if not of[id] then
      of[id] = {}
      local held = payloads_get(P .. payloads, id)
      if held and held ~= '*' then
        local score, payload = split(held)
        of[id] = {payload, score}
      end
    end
    table.insert(of[id], word(row, 2))
    table.insert(of[id], word(row, 3))
  end
  for id, members in pairs(of) do
    zadd_lowest(P .. payloads .. ':' .. id, members)
    redis.call('HSET', P .. payloads, id, '*')
  end
end

local function adopt_notes(id, number, notes)
  local at = 1
  redis.call('HSET', P .. 'meta', 'watched', '1')
  for _, key in ipairs({P .. 'tracked:' .. id, P .. 'tracked_last:' .. id}) do
    local found = string.match(notes, '^(%d+):', at)
    at = at + #found + 1
    redis.call('UNLINK', key)
    for _ = 1, tonumber(found) do
      local length = string.match(notes, '^(%d+):', at)
      at = at + #length + 1
      redis.call('RPUSH', key, string.sub(notes, at, at + length - 1))
      at = at + length
    end
  end
  redis.call('HSET', P .. 'tracks', id, number)
end

local kinds = {}
for _, side in ipairs(SIDES) do kinds[side[1]] = side[2] end
if what == 'due' then
  adopt_jobs('due', 'payloads')
elseif what == 'morgue' then
  adopt_jobs('morgue', 'morgue:payloads')
elseif width == 3 and what ~= 'tracks' then
  adopt_payloads(what)
elseif not kinds[what] then
  return refuse('INVALID', 'nothing is called ' .. what)
else
  for row = 1, count do
    local id, value = word(row, 1), word(row, 2)
    if what == 'tracks' then
      adopt_notes(id, value, word(row, 3))
    elseif what == 'tags' or what == 'morgue:tags' then
      add_tags(P, what, id, value)
    elseif kinds[what] == 'zset' then
      redis.call('ZADD', P .. what, 'NX', value, id)
    else
      redis.call('HSET', P .. what, id, value)
    end
  end
end
return count
