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

--- restore
--@ claimed read parse bury requeue
-- Returns the whole claim to the queue. With max_crashes it counts the death of its holder against each id, and an id
-- that has reached max_crashes goes to the morgue (I7). Returns how many were restored and how many buried.
local function restore_claim(P, now, max_crashes)
  local ids, records = read_claim(P)
  local buried = 0
  for _, id in ipairs(ids) do
    local perform_in, retry_count, held = parse_claimed(P, records[id])
    local crashes = max_crashes and redis.call('HINCRBY', P .. 'crashes', id, 1) or 0
    if max_crashes and crashes >= max_crashes then
      claimed_into(P, P .. 'morgue:payloads', id, held)
      morgue_entry(P, id, 'the node that ran this job died ' .. crashes .. ' times (max_crashes)', now)
      redis.call('HDEL', P .. 'crashes', id)
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
--@ claimed read
-- Takes an id out of the queue but for its payloads, and forgets its failures and deaths, so that a job of that id pushed
-- later starts anew. While the id is also in the claim they are those of the job in hand, and stay (I7).
local in_hand

local function forget_queued(P, id)
  redis.call('ZREM', P .. 'due', id)
  redis.call('ZREM', P .. 'retries', id)
  in_hand = in_hand or select(2, read_claim(P))
  if in_hand[id] then return end
  redis.call('HDEL', P .. 'errors', id)
  redis.call('HDEL', P .. 'crashes', id)
end
