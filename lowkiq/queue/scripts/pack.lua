-- pack: read some of what an old shard holds, in the order in which it moves (moving.lua).
-- KEYS  1 prefix of the old shard
-- ARGV  1 the mover, 2 epoch, 3 most rows, 4 most bytes (the last row may exceed it)
-- returns {what, then of each row its words}; nothing if the shard is empty. What and words are those of adopt and
--       drop_moved: 'away': id, the claim's name, its lease, its last_due, the record there, '1' if it is cancelled (away.lua)
--       · 'claim:each': id, payload, score, of such a claim · 'due' and 'morgue': id, when, record · 'payloads' and
--       'morgue:payloads': id, payload, score · 'tracks': id, count, notes · 'outbox': id, number, name, record (letters.lua) ·
--       'waits:each', 'morgue:waits:each', 'heard:each'
--       and 'waiters:each': id, member, score; or, where nothing more is in its zset, id, '', value · else: id, value
-- errors: FENCED, INVALID (it is not marked)
--@ moving mover
--@ sides move
--@ letters of
--@ claimed in_hand read
--@ shard now stamp
local P, most, most_bytes = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local refusal = fence_mover(P, ARGV[1], ARGV[2])
if refusal then return refusal end
local STEP = 32 -- read at a time: a thousand large ones are not, before the bytes are full
local reply, bytes, rows = {}, 0, 0

local function is_full() return rows >= most or bytes >= most_bytes end

local function add(...)
  for _, word in ipairs({...}) do
    reply[#reply + 1] = word
    bytes = bytes + #word
  end
  rows = rows + 1
end

-- Payloads of an id that has several.
local function add_payloads(zset, id)
  local at = 0
  while not is_full() do
    local page = redis.call('ZRANGE', zset, at, at + STEP - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      if is_full() then return end
      add(id, page[i], page[i + 1])
    end
    if #page < 2 * STEP then return end
    at = at + STEP
  end
end

-- Jobs of an index, or what somebody has taken out of it; but for those with several payloads: while there are such,
-- their payloads.
local function pack_jobs(index, payloads)
  local found = redis.call('ZRANGE', P .. index, 0, most - 1, 'WITHSCORES')
  if #found == 0 then
    for i, id in ipairs(redis.call('HRANDFIELD', P .. payloads, STEP)) do
      found[2 * i - 1], found[2 * i] = id, stamp(now_us())
    end
  end
  local singles = {}
  for first = 1, #found, 2 * STEP do
    local last, ids = math.min(first + 2 * STEP, #found + 1) - 1, {}
    for i = first, last, 2 do ids[#ids + 1] = found[i] end
    for i, record in ipairs(redis.call('HMGET', P .. payloads, unpack(ids))) do
      if record == '*' and redis.call('EXISTS', P .. payloads .. ':' .. ids[i]) == 1 then
        add_payloads(P .. payloads .. ':' .. ids[i], ids[i])
      elseif #reply == 0 then
        singles[#singles + 1] = {ids[i], found[first + 2 * i - 1], record or ''}
        bytes = bytes + #(record or '')
      end
    end
    if is_full() then break end
  end
  if #reply > 0 then return payloads end
  bytes = 0
  for i, job in ipairs(singles) do reply[i * 3 - 2], reply[i * 3 - 1], reply[i * 3] = job[1], job[2], job[3] end
  return #reply > 0 and index
end

-- Claims that are away; before them the payloads of their ids that have several.
local function pack_claims()
  local claims, ids, records = redis.call('EXISTS', P .. 'away') == 1 and claims_in_hand(P) or {}, {}, {}
  for i, claim in ipairs(claims) do
    ids[i], records[i] = read_claim(claim)
    for _, id in ipairs(ids[i]) do add_payloads(P .. 'claim:' .. id, id) end
  end
  if #reply > 0 then return 'claim:each' end
  for i, claim in ipairs(claims) do
    local lease, mark = redis.call('HGET', P .. 'away', claim.name), claim.epoch .. ' ' .. claim.number
    for _, id in ipairs(ids[i]) do
      local is_cancelled = redis.call('HGET', P .. 'cancels', id) == mark
      if not is_full() then add(id, claim.name, lease, claim.last_due, records[i][id], is_cancelled and '1' or '') end
    end
  end
  return #reply > 0 and 'away'
end

local function notes_of(key)
  local notes = redis.call('LRANGE', key, 0, -1)
  for i, note in ipairs(notes) do notes[i] = #note .. ':' .. note end
  return #notes .. ':' .. table.concat(notes)
end

local function pack_letters()
  local found = redis.call('ZRANGE', P .. 'outbox', 0, math.min(most, 500) - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if is_full() then return end
    local record = redis.call('HGET', P .. 'letters', found[i]) or ''
    add(letter_of(record), found[i + 1], found[i], record)
  end
end

-- Of some ids what is in their zsets, and each id itself with the last of that.
local function pack_indexed(name, kind)
  local some = math.ceil(most / 2) -- mostly each waits for one
  local found = kind == 'hash' and redis.call('HRANDFIELD', P .. name, some, 'WITHVALUES')
    or redis.call('ZRANGE', P .. name, 0, some - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if not is_full() then add_payloads(P .. name .. ':' .. found[i], found[i]) end
    if is_full() then break end
    add(found[i], '', found[i + 1])
  end
  return name .. ':each'
end

local function pack_side(name, kind, each)
  if name == 'outbox' then return pack_letters() end
  if each then return pack_indexed(name, kind) end
  if kind == 'zset' then
    reply = redis.call('ZRANGE', P .. name, 0, most - 1, 'WITHSCORES')
    return
  end
  -- Each tracked id has notes, each of a tenant changes its lane, and tags are searched for.
  local FEWER = {tracks = STEP, tenants = 200, tags = 200, ['morgue:tags'] = 200}
  local few = FEWER[name] or 500
  local found = redis.call('HRANDFIELD', P .. name, math.min(most, few), 'WITHVALUES')
  for i = 1, #found, 2 do
    if is_full() then return end
    if name == 'tracks' then
      add(found[i], found[i + 1], notes_of(P .. 'tracked:' .. found[i]) .. notes_of(P .. 'tracked_last:' .. found[i]))
    else
      add(found[i], found[i + 1])
    end
  end
end

local what = pack_claims() or pack_jobs('due', 'payloads') or pack_jobs('morgue', 'morgue:payloads')
for _, side in ipairs(what and {} or SIDES) do
  if redis.call('EXISTS', P .. side[1]) == 1 then
    what = pack_side(unpack(side)) or side[1]
    break
  end
end
if not what then return {} end
table.insert(reply, 1, what)
return reply
