-- stats: what each shard holds and has done.
-- KEYS  shard prefixes (on Cluster: of one slot)
-- returns {now, then for each key {queued, retries, those that wait for their own run, claimed, claims, morgue, oldest
--          due of the others or '', processed, failed, pushed, merged, owner or '', seconds its lease still has, epoch, those
--          that are due later, since when and by whom it is paused or '' (pausing.lua), 1 if nothing claimed of it starts,
--          held ids (holding.lua), blocked ones, since when the first of them is or '', superseded},
--          or {name of a key that is of another type ...}}
--@ shard now stamp clock_back count attempt
--@ pausing rests
--@ claimed never
local KINDS = {due = 'zset', retries = 'zset', claim = 'list', morgue = 'zset', meta = 'hash', owner = 'hash',
  payloads = 'hash', errors = 'hash', crashes = 'hash', ['morgue:payloads'] = 'hash', ['morgue:errors'] = 'hash',
  asides = 'hash', behind = 'hash', cancels = 'hash', checkpoints = 'hash',
  tags = 'hash', claimed_tags = 'hash', ['morgue:tags'] = 'hash', tag_counts = 'zset',
  ['morgue:newer'] = 'hash', blocked = 'zset', tracks = 'hash', watch = 'string', paused = 'string', held = 'zset',
  holds = 'hash', rules = 'hash', debounced = 'hash', spaced = 'zset'}
local RARE = {'errors', 'crashes', 'morgue:payloads', 'morgue:errors', 'asides', 'cancels', 'checkpoints', 'tags',
  'claimed_tags', 'morgue:tags', 'morgue:newer', 'tracks', 'rules', 'debounced', 'behind'}
local now = now_us()
local reply = {stamp(now)}

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
  -- Only their types matter here. Mostly there is none of the rare ones, which one command tells.
  redis.call('HLEN', P .. 'payloads')
  local claimed = redis.call('LLEN', P .. 'claim') / 2
  local claims, waiting, paused, held, blocked, since = math.min(claimed, 1), 0, nil, 0, 0, ''
  local rare = {P .. 'tag_counts', P .. 'paused', P .. 'held', P .. 'holds', P .. 'blocked', P .. 'spaced'}
  for i, name in ipairs(RARE) do rare[i + 6] = P .. name end
  if redis.call('EXISTS', unpack(rare)) > 0 then
    redis.call('ZCARD', P .. 'tag_counts')
    paused = redis.call('GET', P .. 'paused')
    held = redis.call('ZCARD', P .. 'held')
    redis.call('HLEN', P .. 'holds')
    redis.call('ZCARD', P .. 'spaced')
    blocked = redis.call('ZCARD', P .. 'blocked')
    since = redis.call('ZRANGE', P .. 'blocked', 0, 0, 'WITHSCORES')[2] or ''
    for _, name in ipairs(RARE) do waiting = redis.call('HLEN', P .. name) end -- that of the last
    local asides = redis.call('HGETALL', P .. 'asides')
    for i = 1, #asides, 2 do
      claims = claims + 1
      claimed = claimed + redis.call('LLEN', P .. 'aside:' .. asides[i]) / 2
    end
  end
  return {
    redis.call('ZCARD', P .. 'due'),
    redis.call('ZCARD', P .. 'retries'),
    waiting,
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
    held, blocked, since, counters[7] or '0',
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
