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

--- by_hand
local BY_HAND = 'moved to the morgue by hand' -- in place of an error

--- deaths
-- The error of what is buried for them.
local function text_of_deaths(died)
  return 'the node that ran this job died ' .. died .. ' times (max_crashes)'
end

--- bury
--@ shard stamp
local function morgue_entry(P, id, error, now)
  redis.call('ZADD', P .. 'morgue', stamp(now), id)
  redis.call('HSET', P .. 'morgue:errors', id, error)
end

--- newer
--@ payloads lowest
-- `morgue:newer` has ids of which newer payloads were left when they died, and go on: the lowest score of those. Revived
-- after them a job would run out of order (newer.lua). What is pushed later is not known there.
--
-- `score` is the lowest that dies now, `left` that of the next that is still claimed, if any is.
local function note_newer(P, id, score, left)
  local known = redis.call('HGET', P .. 'morgue:newer', id)
  if known and tonumber(known) ~= tonumber(score) then return end
  left = left or lowest_score(P .. 'payloads', id)
  if left then
    redis.call('HSET', P .. 'morgue:newer', id, left)
  elseif known then
    redis.call('HDEL', P .. 'morgue:newer', id)
  end
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

--- requeue
--@ payloads add absorb
--@ parking parked
--@ fewer keeping
--@ tags copy drop
--@ lanes hint
local function claimed_into(P, key, id, held)
  if held == '*' then
    payloads_absorb(key, id, P .. 'claim:' .. id)
  else
    payloads_add(key, id, split(held))
  end
end

-- The failed-job merge rule: what comes back from a claim brings its perform_in and retry_count along, for what waited
-- behind it, too.
local function requeue(P, id, held, perform_in, retry_count)
  if not keep_with(P, id, held, P .. 'claim:' .. id) then claimed_into(P, P .. 'payloads', id, held) end
  copy_tags(P, 'claimed_tags', 'tags', id)
  drop_tags(P, 'claimed_tags', {id})
  redis.call('ZADD', P .. 'due', perform_in, id)
  if is_any_parked(P) then redis.call('HDEL', P .. 'behind', id) end
  if tonumber(retry_count) < 0 then
    redis.call('ZREM', P .. 'retries', id)
  else
    redis.call('ZADD', P .. 'retries', retry_count, id)
  end
  hint(P, id, perform_in)
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
--@ fewer forget
-- Runs of these ids are done with: forgets their deaths, their last errors, what they have kept, their tags and rules.
local function forget(P, ...)
  acquit(P, ...)
  redis.call('HDEL', P .. 'errors', ...)
  redis.call('HDEL', P .. 'checkpoints', ...)
  drop_tags(P, 'claimed_tags', {...})
  forget_rules(P, {...})
end

--- restore
--@ claimed read parse deaths bury newer requeue forget over
--@ cancelling mark
--@ parking unpark
--@ fewer unspace
--@ lanes forget
--@ notes note
--@ waiting gone
-- Returns a whole claim to the queue, but for the cancelled, and the doomed, by whose deaths the morgue knows them. Those
-- that are to pause are due then.
-- Returns how many were restored and how many buried.
local function restore_claim(P, now, claim, doomed, kind, pauses)
  local ids, records = read_claim(claim)
  local restored, buried, dropped = 0, 0, {}
  for _, id in ipairs(ids) do
    local perform_in, retry_count, held = parse_claimed(P, claim, records[id])
    if is_cancelled(P, claim, id) then
      drop_claimed(P, now, id, held)
      dropped[#dropped + 1] = id
      note(P, 'cancelled', id, '')
    elseif doomed[id] then
      local score = held == '*' and redis.call('ZRANGE', P .. 'claim:' .. id, 0, 0, 'WITHSCORES')[2] or split(held)
      claimed_into(P, P .. 'morgue:payloads', id, held)
      copy_tags(P, 'claimed_tags', 'morgue:tags', id)
      morgue_entry(P, id, text_of_deaths(doomed[id]), now)
      note_newer(P, id, score)
      unpark(P, now, {id})
      forget(P, id)
      note(P, 'buried', id, '', 'max_crashes')
      buried = buried + 1
    else
      requeue(P, id, held, pauses and pauses[id] or perform_in, retry_count)
      if not kind then unspace(P, id) end
      note(P, kind or 'released', id, '')
      restored = restored + 1
    end
  end
  end_claim(P, claim) -- last: a user who lacks the right to something above loses no job
  unmark(P, ids)
  forget_tenants(P, ids)
  running = nil -- of before
  tell_if_gone(P, dropped)
  return restored, buried
end

--- claim_of
--@ claimed running
local running

-- The claim that an id is in, if it is.
local function claim_of(P, id)
  running = running or ids_of(claims_in_hand(P, redis.call('HGET', P .. 'owner', 'claim')))
  return running[id]
end

--- unqueue
--@ claimed claim_of forget
--@ lanes drop forget
--@ waiting forget gone
-- Takes an id out of the queue but for its payloads, and forgets its failures and deaths, so that a job of that id pushed
-- later starts anew. While the id is also in a claim they are those of the job in hand, and stay (I7).
local function forget_idle_tenant(P, id)
  if is_fair(P) and not claim_of(P, id) then forget_tenants(P, {id}) end
end

local function unqueue(P, id)
  redis.call('ZREM', P .. 'due', id)
  redis.call('ZREM', P .. 'retries', id)
  redis.call('ZREM', P .. 'blocked', id)
  redis.call('HDEL', P .. 'behind', id)
  redis.call('HDEL', P .. 'debounced', id)
  drop_tags(P, 'tags', {id})
  drop_hint(P, id)
  forget_waits(P, id)
  if not claim_of(P, id) then forget(P, id) end
  forget_idle_tenant(P, id)
  tell_if_gone(P, {id})
end

--- drop
--@ claimed unqueue
local function drop_queued(P, id)
  redis.call('UNLINK', P .. 'payloads:' .. id)
  redis.call('HDEL', P .. 'payloads', id)
  unqueue(P, id)
end

--- drop_from
--@ claimed drop
--@ tags drop
--@ notes note
-- Whether an id is in 'queue', in the queue with failures ('failed'), or in the 'morgue'.
local function is_in(P, which, id)
  if which == 'failed' and not redis.call('ZSCORE', P .. 'retries', id) then return false end
  return redis.call('HEXISTS', P .. (which == 'morgue' and 'morgue:' or '') .. 'payloads', id) == 1
end

local function drop_from(P, which, id)
  if which == 'morgue' then
    redis.call('UNLINK', P .. 'morgue:payloads:' .. id)
    redis.call('HDEL', P .. 'morgue:payloads', id)
    redis.call('ZREM', P .. 'morgue', id)
    redis.call('HDEL', P .. 'morgue:waits', id)
    redis.call('UNLINK', P .. 'morgue:waits:' .. id)
    redis.call('HDEL', P .. 'morgue:errors', id)
    redis.call('HDEL', P .. 'morgue:newer', id)
    drop_tags(P, 'morgue:tags', {id})
    forget_idle_tenant(P, id)
    tell_if_gone(P, {id})
  else
    drop_queued(P, id)
  end
  note(P, 'deleted', id, '')
end
