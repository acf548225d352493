-- adopt: take some of what an old shard held into a new one (moving.lua). What was pushed here since merges as a push to a
-- queued id does: the payloads are united, and the rest is what it was there. Repeating it changes nothing.
-- KEYS  1 prefix of the new shard
-- ARGV  1 layout, 2 index of the old shard, 3 epoch of its mover, 4 what it is (pack.lua), then the words of its rows
-- returns how many rows   errors: LAYOUT, NEWER, RESHARDED, FENCED (a later mover is known, or all has come)
--@ moving feeder
--@ sides move
--@ shard now
--@ claimed read
--@ away lease keep
--@ payloads kind split get add fold zadd bulk_write
--@ tags add
--@ lanes hint again
--@ rules put keep_of equal
--@ fewer keep expire
local P, what = KEYS[1], ARGV[4]
local refusal = check_feeder(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
local width = what == 'outbox' and 4 or what == 'away' and 6 or (what == 'due' or what == 'morgue' or what == 'tracks' or string.sub(what, -8) == 'payloads' or string.sub(what, -5) == ':each') and 3 or 2
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

-- What is left of a queued id whose rule is to keep one payload: pushes to either shard had but those there.
local function keep_by_rule(id)
  local keep = keep_of(P, id)
  if keep and redis.call('HGET', P .. 'payloads', id) == '*' then keep_one(P, id, keep) end
end

-- Several payloads come before their id, which is no job here until it has come itself: to a push it is new, and would
-- write over them. With it they are its own, beside what was pushed since. Returns what holds them now.
local function unite(payloads, id, held)
  local zset = P .. payloads .. ':' .. id
  if held == '*' or redis.call('EXISTS', zset) == 0 then return held end
  if held then
    local score, payload = split(payloads_get(P .. payloads, id))
    zadd_all(zset, {payload, score}, which_of_equal(P .. payloads, id))
  end
  redis.call('HSET', P .. payloads, id, '*')
  return '*'
end

local function adopt_jobs(index, payloads)
  local ids, due, records = {}, {}, {}
  for row = 1, count do ids[row] = word(row, 1) end
  local known = redis.call('HMGET', P .. payloads, unpack(ids))
  for row, id in ipairs(ids) do
    local at, record = word(row, 2), word(row, 3)
    if record == '*' or record == '' then known[row] = unite(payloads, id, known[row]) end
    if known[row] then
      merge(P .. payloads, id, at, record)
      -- Where both are dead the later death is told of.
      if index == 'morgue' then
        redis.call('ZADD', P .. index, 'GT', at, id)
      else
        redis.call('ZADD', P .. index, at, id)
        hint(P, id, at)
        keep_by_rule(id)
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
    zadd_all(P .. payloads .. ':' .. id, members, which_of_equal(P .. payloads, id))
    if redis.call('HEXISTS', P .. payloads, id) == 1 then redis.call('HSET', P .. payloads, id, '*') end
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

-- An id that waited for a pause in its pushes: one that was pushed here since moves it, as far as it may be moved.
local function adopt_debounced(id, mark)
  local at, latest = string.match(mark, '^(%S+) (%S+)$')
  if not at or tonumber(redis.call('ZSCORE', P .. 'due', id)) ~= tonumber(at) then return end
  local moved = string.match(redis.call('HGET', P .. 'debounced', id) or '', '^(%S+)')
  if moved and tonumber(moved) > tonumber(at) then
    at = tonumber(moved) < tonumber(latest) and moved or latest
    redis.call('ZADD', P .. 'due', at, id)
    hint(P, id, at)
  end
  redis.call('HSET', P .. 'debounced', id, at .. ' ' .. latest)
end

-- The tenant of an id, unless it was pushed here for another since.
local function adopt_tenant(id, tenant)
  tenant_again(P, id, tenant)
  local due = redis.call('ZSCORE', P .. 'due', id)
  if due then hint(P, id, due) end
end

-- Until when an id does not start again. No claim of this shard has noted that of any yet.
local function adopt_spaced(id, until_at)
  redis.call('ZADD', P .. 'spaced', 'GT', until_at, id)
  keep_spaced(P, math.max(0, math.ceil(until_at - redis.call('TIME')[1])))
end

-- Letters of this shard come behind those that an id brings along.
local function adopt_letter(number, name, record)
  if record == '' then return end -- somebody has deleted it
  if redis.call('ZADD', P .. 'outbox', 'NX', number, name) == 1 then redis.call('HSET', P .. 'letters', name, record) end
end

-- An id in a claim that is away. The claim has its whole time from here on.
local in_claims = {}

local function adopt_claimed(id, name, text, last_due, record, is_cancelled)
  name = name .. '@' .. ARGV[2]
  local claim, lease = {key = P .. 'aside:' .. name}, parse_away(text)
  lease.ends = now_us() + lease.ttl * 1000000
  keep_away(P, name, lease)
  redis.call('HSET', P .. 'asides', name, last_due)
  if not in_claims[name] then
    local _, records = read_claim(claim)
    in_claims[name] = records
  end
  if not in_claims[name][id] then redis.call('RPUSH', claim.key, id, record) end
  in_claims[name][id] = record
  if is_cancelled == '1' then redis.call('HSET', P .. 'cancels', id, (string.gsub(name, ':', ' ', 1))) end
end

-- The earlier of two times.
local function adopt_earliest(id, at) redis.call('ZADD', P .. what, 'LT', at, id) end

local function adopt_tags(id, tags) add_tags(P, what, id, tags) end

-- How a side merges with what this shard has of an id already. That is of pushes, which alone are not refused before all has
-- come (check_whole); what they leave alone is as it was there, as are the sides that are not named here.
local ADOPTS = {
  tags = adopt_tags, claimed_tags = adopt_tags, ['morgue:tags'] = adopt_tags, -- united
  tenants = adopt_tenant, -- that of the push
  debounced = adopt_debounced, spaced = adopt_spaced, -- the later time, as far as it may be moved
  held = adopt_earliest, asks = adopt_earliest, -- of an id that waits
  -- `waits` is as it was: nothing that an id waits for has been done here yet. What it waits for is united, and of two
  -- questions for the same the later one counts.
  rules = function(id, rule)
    put_rule(P, id, rule)
    keep_by_rule(id)
  end,
}

local kinds = {}
for _, side in ipairs(SIDES) do kinds[side[1]] = side[2] end

local function adopt_side(side, id, value)
  if ADOPTS[side] then
    ADOPTS[side](id, value)
  elseif kinds[side] == 'zset' then
    redis.call('ZADD', P .. side, 'NX', value, id)
  else
    redis.call('HSET', P .. side, id, value)
  end
end

local function adopt_indexed(index, id, member, value)
  if member == '' then return adopt_side(index, id, value) end
  redis.call('ZADD', P .. index .. ':' .. id, 'GT', value, member)
end

if what == 'due' then
  adopt_jobs('due', 'payloads')
elseif what == 'morgue' then
  adopt_jobs('morgue', 'morgue:payloads')
elseif what == 'away' then
  for row = 1, count do
    adopt_claimed(word(row, 1), word(row, 2), word(row, 3), word(row, 4), word(row, 5), word(row, 6))
  end
elseif what == 'claim:each' then
  for row = 1, count do redis.call('ZADD', P .. 'claim:' .. word(row, 1), 'NX', word(row, 3), word(row, 2)) end
elseif what == 'outbox' then
  for row = 1, count do adopt_letter(word(row, 2), word(row, 3), word(row, 4)) end
elseif string.sub(what, -5) == ':each' then
  for row = 1, count do adopt_indexed(string.sub(what, 1, -6), word(row, 1), word(row, 2), word(row, 3)) end
elseif width == 3 and what ~= 'tracks' then
  adopt_payloads(what)
elseif not kinds[what] then
  return refuse('INVALID', 'nothing is called ' .. what)
else
  for row = 1, count do
    local id, value = word(row, 1), word(row, 2)
    if what == 'tracks' then adopt_notes(id, value, word(row, 3)) else adopt_side(what, id, value) end
  end
end
return count
