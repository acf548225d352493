--! once
-- put_back: undo a deletion. What is deleted comes back as if it had only been in hand: with its payloads, due time and
-- retry_count, also where its id has been pushed again since; then the payloads merge. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 the name that put_away was given, then ids
-- returns how many came back, or that, and the ids of which payloads are left to come   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock
--@ moving whole
--@ payloads add absorb zadd
--@ endings bury
--@ claimed running blocked
--@ rules put
--@ fewer keeping
--@ tags add
--@ notes note
--@ lanes hint again
--@ waiting again
--@ kept words
--@ bell ring
local P, kept, waits_kept = KEYS[1], KEYS[1] .. 'undo:' .. ARGV[2], KEYS[1] .. 'undo_waits:' .. ARGV[2] .. ':'
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end
local now = shard_now(P, last_score)
local running = ids_of(claims_in_hand(P, redis.call('HGET', P .. 'owner', 'claim')))

-- What put_away has written.
local function fields_of(record)
  local fields, at = {}, 1
  for i = 1, WORDS do
    local length = string.match(record, '^(%d+):', at)
    if length then at = at + #length + 1 end
    fields[i] = length and string.sub(record, at, at + length - 1) or false
    at = at + (length or 1)
  end
  return fields
end

local function is_number(text)
  local number = tonumber(text)
  return number and math.abs(number) < math.huge -- nor is NaN
end

-- True for what put_away may have written: whatever else is there must not stop this halfway.
local function is_record(where, at, retry_count, _, held)
  local score = held and string.match(held, '^([^:]+):')
  return (where == 'queue' or where == 'morgue') and at and is_number(at) and (not retry_count or is_number(retry_count))
    and (held == '*' or score and is_number(score))
end

-- A zset may have lapsed a moment before the rest; or it is back, and what came after it was refused.
local function is_whole(id, where, held, done)
  local place = P .. (where == 'morgue' and 'morgue:' or '')
  local function is_there(zset, name)
    return redis.call('EXISTS', zset) == 1 or redis.call('HEXISTS', place .. name, id) == 1
  end
  return held and (held ~= '*' or is_there(kept .. ':' .. id, 'payloads'))
    and (not done or is_there(waits_kept .. id, 'waits'))
end

local function merge(payloads, id, held, zset)
  if held == '*' then
    redis.call('PERSIST', zset)
    payloads_absorb(payloads, id, zset)
  else
    payloads_add(payloads, id, split(held))
  end
end

-- Where both here and there are many payloads they come together a page at a time, the lowest first. Returns whether more are
-- left after that.
local PAGE, SECONDS = 1000, 60 -- for which the rest is kept then

local function merge_page(where, id, held)
  local payloads = P .. (where == 'morgue' and 'morgue:' or '') .. 'payloads'
  local zset, target = kept .. ':' .. id, payloads .. ':' .. id
  if held ~= '*' or math.min(redis.call('ZCARD', zset), redis.call('ZCARD', target)) <= PAGE then return false end
  zadd_all(target, redis.call('ZRANGE', zset, 0, PAGE - 1, 'WITHSCORES'), which_of_equal(payloads, id))
  redis.call('ZREMRANGEBYRANK', zset, 0, PAGE - 1)
  redis.call('EXPIRE', zset, SECONDS)
  redis.call('EXPIRE', kept, SECONDS)
  redis.call('EXPIRE', waits_kept .. id, SECONDS)
  return true
end

local function put_back(id, where, at, retry_count, error, held, crashes, crowds, checkpoint, tags, tenant, rule, done)
  local zset = kept .. ':' .. id
  if tags then add_tags(P, where == 'morgue' and 'morgue:tags' or 'tags', id, tags) end
  if tenant then tenant_again(P, id, tenant) end
  if where == 'morgue' then
    note(P, 'buried', id, '', 'put back')
    merge(P .. 'morgue:payloads', id, held, zset)
    if done then
      redis.call('HINCRBY', P .. 'morgue:waits', id, done)
      redis.call('PERSIST', waits_kept .. id)
      join_waits(waits_kept .. id, P .. 'morgue:waits:' .. id)
    end
    -- If it died again since, that is what is told of it.
    if not redis.call('ZSCORE', P .. 'morgue', id) then morgue_entry(P, id, error or '', at * 1000000) end
    return
  end
  note(P, 'pushed', id, '', redis.call('HEXISTS', P .. 'payloads', id) == 1 and 'put back, merged' or 'put back')
  if done then wait_again(P, ARGV[1], id, done, waits_kept .. id) end
  local was_blocked = is_blocked(P, id)
  put_rule(P, id, rule)
  if not keep_with(P, id, held, zset) then merge(P .. 'payloads', id, held, zset) end
  if not was_blocked then -- else it stays so
    if tonumber(at) == tonumber(NEVER) then redis.call('ZADD', P .. 'blocked', stamp(now), id) end
    redis.call('ZADD', P .. 'due', at, id)
    hint(P, id, at)
    redis.call('HDEL', P .. 'behind', id)
    if retry_count then redis.call('ZADD', P .. 'retries', retry_count, id) else redis.call('ZREM', P .. 'retries', id) end
  end
  -- What the shard knows of an id that runs is of that run.
  if running[id] then return end
  for name, value in pairs({errors = error, crashes = crashes, crowds = crowds, checkpoints = checkpoint}) do
    if value and redis.call('HEXISTS', P .. name, id) == 0 then redis.call('HSET', P .. name, id, value) end
  end
end

local returned, earliest, left = 0, math.huge, {}
for i = 3, #ARGV do
  local record = redis.call('HGET', kept, ARGV[i])
  local fields = record and fields_of(record)
  local is_sound = fields and is_record(unpack(fields, 1, 5)) and is_whole(ARGV[i], fields[1], fields[5], fields[WORDS])
  if is_sound and merge_page(fields[1], ARGV[i], fields[5]) then
    left[#left + 1] = ARGV[i]
  elseif is_sound then
    put_back(ARGV[i], unpack(fields, 1, WORDS))
    redis.call('HDEL', kept, ARGV[i]) -- last: what fails before can be done again
    returned = returned + 1
    if fields[1] == 'queue' then earliest = math.min(earliest, fields[2] * 1000000) end
  end
end
if earliest < math.huge then ring(P, earliest, now) end
return #left > 0 and {returned, unpack(left)} or returned
