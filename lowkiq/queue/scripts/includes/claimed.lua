-- The claim is a list: an id, its record, the next id, its record ... in the order in which they were taken. A claim is
-- mostly written once and settled whole, and for that a list takes half of what a hash does. To find one id it is read whole.
-- A record is compact, near the owner's `last_due`; or "perform_in:retry_count:score:payload"; or
-- "perform_in:retry_count:*" with the payloads in the zset claim:<id>.

--- read
-- The ids of the claim, and the record of each.
local function read_claim(P)
  local list = redis.call('LRANGE', P .. 'claim', 0, -1)
  local ids, records = {}, {}
  for i = 1, #list, 2 do
    ids[#ids + 1] = list[i]
    records[list[i]] = list[i + 1]
  end
  return ids, records
end

--- parse
--@ shard stamp
--@ payloads span get split
-- When a job with a compact record is due that is due by `last`, and less than SPAN before.
local function compact_us(record, last)
  local a, b, c, d = string.byte(record, 1, 4)
  return last - (last - (((a - 128) * 256 + b) * 256 + c) * 256 - d) % SPAN
end

local last_due

-- perform_in, retry_count, and what holds the payloads (payloads.lua).
local function parse_claimed(P, record)
  if is_compact(record) then
    last_due = last_due or tonumber(redis.call('HGET', P .. 'owner', 'last_due'))
    local due_at = stamp(compact_us(record, last_due))
    return due_at, '-1', due_at .. ':' .. string.sub(record, 5)
  end
  local perform_in, rest = split(record)
  return perform_in, split(rest)
end

--- bury
--@ shard stamp
local function morgue_entry(P, id, error, now)
  redis.call('ZADD', P .. 'morgue', stamp(now), id)
  redis.call('HSET', P .. 'morgue:errors', id, error)
end

--- requeue
--@ payloads add absorb
local function claimed_into(P, key, id, held)
  if held == '*' then
    payloads_absorb(key, id, P .. 'claim:' .. id)
  else
    payloads_add(key, id, split(held))
  end
end

-- The failed-job merge rule: what comes back from a claim brings its perform_in and retry_count along.
local function requeue(P, id, held, perform_in, retry_count)
  claimed_into(P, P .. 'payloads', id, held)
  redis.call('ZADD', P .. 'due', perform_in, id)
  if tonumber(retry_count) < 0 then
    redis.call('ZREM', P .. 'retries', id)
  else
    redis.call('ZADD', P .. 'retries', retry_count, id)
  end
end

--- acquit
-- Forgets the deaths that ids were suspected of: in `crashes` the first one, and each during which an id ran alone; in
-- `crowds` further ones during which others ran too.
local function acquit(P, ...)
  redis.call('HDEL', P .. 'crashes', ...)
  redis.call('HDEL', P .. 'crowds', ...)
end

--- death
--@ claimed read
-- Counts the death of the claim's holder against the ids that ran then (I7). `ran` is '' when nobody knows what did: then
-- all of the claim may have; or '-' for nothing; or 'number:jobs:after': so many jobs of the claim with that number, and
-- so many that came after them, since settled jobs are those before. A number that can't be of this claim is '-'.
--
-- Of those that ran at once nobody knows which killed the node, so their first death makes them suspects and no more.
-- It is held against a suspect that ran alone on its node (isolate.lua), and only then it is buried, as soon as it has
-- reached max_crashes. Returns the deaths of ids that are to be buried.
local function count_death(P, ran, max_crashes)
  local ids = read_claim(P)
  local claim, alone = unpack(redis.call('HMGET', P .. 'owner', 'claim', 'alone'))
  local number, jobs, after = string.match(ran, '^(%d+):(%d+):(%d+)$')
  local first, last = 1, #ids
  if ran == '-' or number and number ~= claim then return {} end
  if number and jobs + after <= #ids then first, last = #ids - after - jobs + 1, #ids - after end

  local function count(deaths, id)
    local died = (tonumber(redis.call('HGET', P .. deaths, id)) or 0) + 1
    redis.call('HSET', P .. deaths, id, string.format('%.0f', died))
    return died
  end

  local doomed = {}
  for i = first, last do
    local id = ids[i]
    if alone == (claim or '') .. ' ' .. id then
      local died = count('crashes', id)
      if died >= max_crashes then doomed[id] = died end
    else
      count(redis.call('HEXISTS', P .. 'crashes', id) == 0 and 'crashes' or 'crowds', id)
    end
  end
  return doomed
end

--- restore
--@ claimed read parse bury requeue acquit
-- Returns the whole claim to the queue, but for the doomed, by whose deaths the morgue knows them. Returns how many were
-- restored and how many buried.
local function restore_claim(P, now, doomed)
  local ids, records = read_claim(P)
  local buried = 0
  for _, id in ipairs(ids) do
    local perform_in, retry_count, held = parse_claimed(P, records[id])
    if doomed[id] then
      claimed_into(P, P .. 'morgue:payloads', id, held)
      morgue_entry(P, id, 'the node that ran this job died ' .. doomed[id] .. ' times (max_crashes)', now)
      acquit(P, id)
      redis.call('HDEL', P .. 'errors', id)
      buried = buried + 1
    else
      requeue(P, id, held, perform_in, retry_count)
    end
  end
  redis.call('UNLINK', P .. 'claim') -- last: a user who lacks the right to something above loses no job
  return #ids - buried, buried
end

--- forget
--@ claimed read acquit
-- Takes an id out of the queue but for its payloads, and forgets its failures and deaths, so that a job of that id pushed
-- later starts anew. While the id is also in the claim they are those of the job in hand, and stay (I7).
local in_hand

local function forget_queued(P, id)
  redis.call('ZREM', P .. 'due', id)
  redis.call('ZREM', P .. 'retries', id)
  in_hand = in_hand or select(2, read_claim(P))
  if in_hand[id] then return end
  redis.call('HDEL', P .. 'errors', id)
  acquit(P, id)
end
