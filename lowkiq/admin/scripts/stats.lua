-- stats: what each shard holds and has done.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- returns {now, then for each key {queued, retries, those that wait for their own run, claimed, claims, morgue, oldest
--          due of the others or '', processed, failed, pushed, merged, owner or '', seconds its lease still has, epoch, those
--          that are due later, since when and by whom it is paused or '' (pausing.lua), 1 if nothing claimed of it starts,
--          held ids (holding.lua), blocked ones, since when the first of them is or '', superseded, since when the first
--          letter that is sent waits (letters.lua) or '', ids that wait for others (waiting.lua), since when the first of
--          them does or '', when the next entry fires (recurring.lua) or ''},
--          or {name of a key that is of another type ...}}
--@ shard now stamp
--@ set_back clock_back
--@ shard count attempt
--@ pausing rests
--@ claimed never
--@ letters sent
local KINDS = {due = 'zset', retries = 'zset', claim = 'list', morgue = 'zset', meta = 'hash', owner = 'hash',
  payloads = 'hash', errors = 'hash', crashes = 'hash', ['morgue:payloads'] = 'hash', ['morgue:errors'] = 'hash',
  asides = 'hash', away = 'hash', behind = 'hash', cancels = 'hash', checkpoints = 'hash',
  tags = 'hash', claimed_tags = 'hash', ['morgue:tags'] = 'hash', tag_counts = 'zset',
  ['morgue:newer'] = 'hash', blocked = 'zset', tracks = 'hash', watch = 'string', paused = 'string', held = 'zset',
  holds = 'hash', tenants = 'hash', lanes = 'zset', lanes_later = 'zset', rules = 'hash', debounced = 'hash',
  spaced = 'zset', outbox = 'zset', letters = 'hash', waits = 'hash', recurs = 'zset'}
-- What mostly is not there, what is met most often first; each with what tells that it is, and that it is of its type.
local RARE = {'errors', 'morgue:payloads', 'morgue:errors', 'behind', 'asides', 'away', 'tags', 'tag_counts', 'claimed_tags',
  'morgue:tags', 'blocked', 'held', 'holds', 'paused', 'tenants', 'lanes', 'lanes_later', 'rules', 'debounced', 'spaced',
  'crashes', 'cancels', 'checkpoints', 'morgue:newer', 'tracks', 'outbox', 'waits', 'recurs'}
local LENGTH = {hash = 'HLEN', zset = 'ZCARD', string = 'STRLEN'}
local now = now_us()
local reply = {stamp(now)}

-- The lengths of those that are there: one command tells how many, and the last of them ends the search.
local function lengths_of_rare(P)
  local names, lengths = {}, {}
  for i, name in ipairs(RARE) do names[i] = P .. name end
  local left = redis.call('EXISTS', unpack(names))
  for i, name in ipairs(RARE) do
    if left == 0 then break end
    local length = redis.call(LENGTH[KINDS[name]], names[i])
    if length > 0 then lengths[name], left = length, left - 1 end
  end
  return lengths
end

-- The score of the first of a sorted set, '' where it is not among those that are there.
local function first_of(P, name, lengths)
  return lengths[name] and redis.call('ZRANGE', P .. name, 0, 0, 'WITHSCORES')[2] or ''
end

-- Since when the first of those that wait for others does. People's holds are among the held; of very many older ones not
-- all are looked at.
local function waits_since(P, lengths)
  local held = lengths.waits and redis.call('ZRANGE', P .. 'held', 0, 19, 'WITHSCORES') or {}
  for i = 1, #held, 2 do
    if redis.call('HEXISTS', P .. 'waits', held[i]) == 1 then return held[i + 1] end
  end
  return ''
end

-- Since when the first letter waits to be sent. Of very many burials before it not all are looked at.
local function unsent_since(P, lengths)
  local first = lengths.outbox and redis.call('ZRANGE', P .. 'outbox', 0, 19, 'WITHSCORES') or {}
  for i = 1, #first, 2 do
    if is_sent(redis.call('HGET', P .. 'letters', first[i]) or '') then return first[i + 1] end
  end
  return ''
end

local function read(P)
  local counters = redis.call('HMGET', P .. 'meta', 'processed', 'failed', 'pushed', 'merged', 'last_score', 'seen',
    'superseded')
  local oldest = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or ''
  -- All that is queued waits for its own run, or is blocked.
  if oldest ~= '' and tonumber(oldest) >= tonumber(NEVER) then oldest = '' end
  if oldest ~= '' and was_due(oldest * 1000000, now, tonumber(counters[5]) or 0, counters[6]) then oldest = reply[1] end
  -- Pushes of one call are due a little ahead of the clock; and when it was set back, what was due still is.
  local last_score = tonumber(counters[5]) or 0
  local due_by = last_score > now and math.max(now, tonumber(counters[6]) or last_score) or now
  local later = oldest == '' and 0 or redis.call('ZCOUNT', P .. 'due', '(' .. stamp(due_by), '(' .. NEVER)
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'until', 'epoch')
  local lease_end = tonumber(owner[2]) or 0
  redis.call('HLEN', P .. 'payloads') -- only its type matters here
  local claimed = redis.call('LLEN', P .. 'claim') / 2
  local claims, lengths, paused = math.min(claimed, 1), lengths_of_rare(P), nil
  if lengths.paused then paused = redis.call('GET', P .. 'paused') end
  if lengths.asides then
    local asides = redis.call('HGETALL', P .. 'asides')
    for i = 1, #asides, 2 do
      claims = claims + 1
      claimed = claimed + redis.call('LLEN', P .. 'aside:' .. asides[i]) / 2
    end
  end
  return {
    redis.call('ZCARD', P .. 'due'),
    redis.call('ZCARD', P .. 'retries'),
    lengths.behind or 0,
    claimed,
    claims,
    redis.call('ZCARD', P .. 'morgue'),
    oldest,
    counters[1] or '0', counters[2] or '0', counters[3] or '0', counters[4] or '0',
    owner[1] or '',
    lease_end < 1e15 and string.format('%.6f', math.max(lease_end - now / 1000000, 0)) or '0',
    owner[3] or '0',
    later,
    paused or '',
    paused and is_at_rest(P, now) and 1 or 0,
    lengths.held or 0, lengths.blocked or 0, first_of(P, 'blocked', lengths), counters[7] or '0',
    unsent_since(P, lengths), lengths.waits or 0, waits_since(P, lengths), first_of(P, 'recurs', lengths),
  }
end

local function of_another_type(P)
  local found = {}
  local function look(name, kind)
    local is = redis.call('TYPE', P .. name).ok
    if is ~= kind and is ~= 'none' then found[#found + 1] = name end
  end
  for name, kind in pairs(KINDS) do look(name, kind) end
  for _, number in ipairs(attempt(redis.call, 'HGETALL', P .. 'asides') or {}) do look('aside:' .. number, 'list') end
  return found
end

for i = 1, SHARDS do reply[i + 1] = attempt(read, KEYS[i]) or of_another_type(KEYS[i]) end
return reply
