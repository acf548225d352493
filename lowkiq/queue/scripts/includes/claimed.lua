-- A claim is a list: an id, its record, the next id, its record ... in the order in which they were taken. A claim is
-- mostly written once and settled whole, and for that a list takes half of what a hash does. To find one id it is read whole.
-- A record is compact, near the claim's `last_due`; or "perform_in:retry_count:score:payload"; or
-- "perform_in:retry_count:*" with the payloads in the zset claim:<id>.
--
-- The newest claim is the list `claim`, with its number and last_due in `owner`. Older ones that are still in hand are set
-- aside: `asides` has their last_due by number, and aside:<number> is the list. So are claims that outlive their owner's hold
-- of the shard, by another name (away.lua). An id is in at most one of all (I4).
--
-- `checkpoints` has what a run of an id has kept for the next one: "length:name" and the
-- value. The name is that of the lowest payload of that run (checkpoint.lua): its score may rise (payloads.lua).

--- find
-- The claim of that number: its number, the key of its list and, if it is known already, its last_due. nil if it is over.
local function find_claim(P, number, last_claim)
  if tonumber(number) == last_claim then return {name = number, number = number, key = P .. 'claim'} end
  local last_due = redis.call('HGET', P .. 'asides', number)
  return last_due and {name = number, number = number, key = P .. 'aside:' .. number, last_due = last_due}
end

--- in_hand
-- All claims that are not over. Of those that are away (away.lua) `epoch` is the one under which they were made.
local function claims_in_hand(P, last_claim)
  local asides, claims = redis.call('HGETALL', P .. 'asides'), {}
  for i = 1, #asides, 2 do
    local name = asides[i]
    local epoch, number = string.match(name, '^(%d+):(.+)$')
    claims[#claims + 1] = {name = name, number = number or name, epoch = epoch, key = P .. 'aside:' .. name, last_due = asides[i + 1]}
  end
  if redis.call('EXISTS', P .. 'claim') == 1 then
    local number = tostring(last_claim or '')
    claims[#claims + 1] = {name = number, number = number, key = P .. 'claim'}
  end
  return claims
end

--- set_aside
-- Makes room for a newer claim. It is written where the claim goes before that goes there, so that it is never unknown.
local function set_aside(P, last_claim, number)
  if redis.call('EXISTS', P .. 'claim') == 1 then
    redis.call('HSET', P .. 'asides', last_claim, redis.call('HGET', P .. 'owner', 'last_due') or '0')
    redis.call('RENAME', P .. 'claim', P .. 'aside:' .. last_claim)
  end
  redis.call('HSET', P .. 'owner', 'claim', number)
end

--- over
local function end_claim(P, claim)
  redis.call('UNLINK', claim.key)
  if claim.key ~= P .. 'claim' then redis.call('HDEL', P .. 'asides', claim.name) end
  if claim.epoch then redis.call('HDEL', P .. 'away', claim.name) end
end

--- read
-- The ids of a claim, and the record of each.
local function read_claim(claim)
  local list = redis.call('LRANGE', claim.key, 0, -1)
  local ids, records = {}, {}
  for i = 1, #list, 2 do
    ids[#ids + 1] = list[i]
    records[list[i]] = list[i + 1]
  end
  return ids, records
end

--- parse
--@ shard stamp
--@ payloads span kind split
-- When a job with a compact record is due that is due by `last`, and less than SPAN before.
local function compact_us(record, last)
  local a, b, c, d = string.byte(record, 1, 4)
  return last - (last - (((a - 128) * 256 + b) * 256 + c) * 256 - d) % SPAN
end

-- perform_in, retry_count, and what holds the payloads (payloads.lua).
local function parse_claimed(P, claim, record)
  if is_compact(record) then
    claim.last_due = claim.last_due or redis.call('HGET', P .. 'owner', 'last_due')
    local due_at = stamp(compact_us(record, tonumber(claim.last_due)))
    return due_at, '-1', due_at .. ':' .. string.sub(record, 5)
  end
  local perform_in, rest = split(record)
  return perform_in, split(rest)
end

--- never
-- A blocked id waits for a person, with all its payloads: in `due` it stands at a time that never comes, so no claim meets
-- it, and what is pushed merges. `blocked` has since when. That time is no 'inf': an owner that waits for nothing gets
-- pushes handed over, whatever their ids (push.lua). Its record is in full.
local NEVER = '1e+30'

--- blocked
--@ claimed never
local function is_blocked(P, id)
  return tonumber(redis.call('ZSCORE', P .. 'due', id) or 0) == tonumber(NEVER)
end

--- running
--@ claimed in_hand
-- The ids in these claims, as keys, and the claim of each.
local function ids_of(claims)
  local ids = {}
  for _, claim in ipairs(claims) do
    local list = redis.call('LRANGE', claim.key, 0, -1)
    for i = 1, #list, 2 do ids[list[i]] = claim end
  end
  return ids
end

--- acquit
-- Forgets the deaths that ids were suspected of: in `crashes` the first one, and each that only the id can have caused; in
-- `crowds` further ones (deaths.lua).
local function acquit(P, ...)
  redis.call('HDEL', P .. 'crashes', ...)
  redis.call('HDEL', P .. 'crowds', ...)
end

--- forget
--@ claimed acquit
--@ tags drop
--@ rules forget
-- Runs of these ids are done with: forgets their deaths, their last errors, what they have kept, their tags and rules.
local function forget(P, ...)
  acquit(P, ...)
  redis.call('HDEL', P .. 'errors', ...)
  redis.call('HDEL', P .. 'checkpoints', ...)
  drop_tags(P, 'claimed_tags', {...})
  forget_rules(P, {...})
end

--- claim_of
--@ claimed running
local running

-- The claim that an id is in, if it is.
local function claim_of(P, id)
  running = running or ids_of(claims_in_hand(P, redis.call('HGET', P .. 'owner', 'claim')))
  return running[id]
end
