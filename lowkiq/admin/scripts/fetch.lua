-- fetch: jobs of the queue, of the claims or of the morgue, as they are.
-- KEYS  1 shard prefix
-- ARGV  1 'queue', 'claim' or 'morgue', 2 most payloads of a job to return, 3 bytes at which each payload is cut, or
--       '' to return them whole, then ids
-- returns for each id nil, or {perform_in or updated_at, retry_count or '', error or '', deaths, where it is: the key
--         that holds it, after the prefix, or 'behind' if it waits for its own run, 'held' if somebody holds it or it waits for
--         others, or 'blocked' (then it is since when); tags (tags.lua) or '', number of
--         payloads, payload, score, size, payload, score, size ...}; or 'later': what comes before it is much, so ask again; or 'unreadable' and that
--         key; or the whole name of the key that is of another type, '' for one that stats tells of
--@ shard attempt
--@ payloads get
--@ claimed in_hand read parse never
local P = KEYS[1]
local where, most, cut = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- Who wants payloads cut wants to look, not to wait: this many bytes are read for a call, the rest is left out. Of whole
-- ones no more ids are begun after that: others wait while this runs.
local BUDGET, STEP = 4 * 1024 * 1024, 10
local read = 0
local function is_spent() return cut and read > BUDGET end

-- What holds the payloads of an id; once the budget is spent, only of what kind it is.
local function held_in(key, id)
  if not is_spent() then return payloads_get(key, id) end
  local length = redis.call('HSTRLEN', key, id)
  return length > 0 and (length == 1 and '*' or ':')
end

-- The keys of the place.
local index, payloads, errors, tags = P .. 'due', P .. 'payloads', P .. 'errors', P .. 'tags'
if where == 'claim' then payloads, tags = P .. 'claim', P .. 'claimed_tags' end -- of several
if where == 'morgue' then
  index, payloads, errors, tags = P .. 'morgue', P .. 'morgue:payloads', P .. 'morgue:errors', P .. 'morgue:tags'
end
local LONGEST_TAGS = 16384 -- bytes: what is longer was not pushed
local has_tags = redis.call('EXISTS', tags) == 1
local has_held = redis.call('EXISTS', P .. 'held') == 1

-- Claimed jobs: the claim of each, and its record there.
local claims, records = {}, {}
local function look_into(claim)
  local ids, found = read_claim(claim)
  for _, id in ipairs(ids) do claims[id], records[id] = claim, found[id] end
end
if where == 'claim' then
  for _, claim in ipairs(attempt(claims_in_hand, P) or {{key = P .. 'claim'}}) do attempt(look_into, claim) end
end

-- The key that holds an id, after the prefix.
local function holder(id)
  return string.sub(claims[id] and claims[id].key or payloads, #P + 1)
end

-- When, retry_count, what holds the payloads (payloads.lua), and 'behind' if it waits for its own run, 'held', or 'blocked'.
local function find(id)
  if claims[id] then return parse_claimed(P, claims[id], records[id]) end
  if where == 'claim' then return end
  local at = redis.call('ZSCORE', index, id)
  local retry_count = where == 'morgue' and '' or redis.call('ZSCORE', P .. 'retries', id) or '-1'
  local own = where == 'queue' and at == 'inf' and redis.call('HGET', P .. 'behind', id)
  if where == 'queue' and tonumber(at or 0) == tonumber(NEVER) then
    return redis.call('ZSCORE', P .. 'blocked', id) or '0', retry_count, held_in(payloads, id), 'blocked'
  end
  local is_held = where == 'queue' and has_held and redis.call('ZSCORE', P .. 'held', id)
  return own or at, retry_count, at and held_in(payloads, id), is_held and 'held' or own and 'behind'
end

local function add(job, score, payload)
  if is_spent() then return end
  read = read + #payload
  job[#job + 1] = cut and string.sub(payload, 1, cut) or payload
  job[#job + 1] = score
  job[#job + 1] = #payload
end

local function add_several(job, key)
  local step = cut and STEP or most
  for first = 0, most - 1, step do
    if is_spent() then return end
    local page = redis.call('ZRANGE', key, first, math.min(first + step, most) - 1, 'WITHSCORES')
    for i = 1, #page, 2 do add(job, page[i + 1], page[i]) end
    if #page == 0 then return end
  end
end

local LONGEST_ERROR = 64 * 1024 -- of one to be looked at

local function fetch(id)
  local at, retry_count, held, waits = find(id)
  if not at or not held then return false end
  local error = redis.call('HGET', errors, id) or ''
  if #error > LONGEST_ERROR then read = read + #error end
  if cut then error = string.sub(error, 1, LONGEST_ERROR) end
  local deaths = redis.call('HGET', P .. 'crashes', id) or '0'
  local length = has_tags and attempt(redis.call, 'HSTRLEN', tags, id) or 0
  local tagged = length > 0 and length <= LONGEST_TAGS and redis.call('HGET', tags, id) or ''
  local job = {at, retry_count, error, deaths, waits or holder(id), tagged, 1}
  if held == '*' then
    job[7] = redis.call('ZCARD', payloads .. ':' .. id)
    add_several(job, payloads .. ':' .. id)
  elseif most > 0 then
    add(job, split(held))
  end
  return job
end

local function blame(id, error)
  if not string.find(error, 'WRONGTYPE', 1, true) then return 'unreadable ' .. holder(id) end
  local kind = redis.call('TYPE', payloads .. ':' .. id).ok
  return kind ~= 'zset' and kind ~= 'none' and payloads .. ':' .. id or ''
end

local jobs = {}
for i = 4, #ARGV do
  if not cut and read > BUDGET then
    jobs[i - 3] = 'later'
  else
    local job, error = attempt(fetch, ARGV[i])
    if error then job = blame(ARGV[i], error) end
    jobs[i - 3] = job
  end
end
return jobs
