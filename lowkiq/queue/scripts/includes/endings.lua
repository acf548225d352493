-- How jobs leave a claim, the queue or the morgue: back into the queue, into the morgue, or away for good.

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

--- untold
--@ waiting joined queue
--@ letters write post
-- Nobody lived to say so: a letter has the shard's owner call what the application has for it (letters.lua).
local function tell_of_burial(P, id)
  write_letter(P, joined(id, 'buried', queue_here(P), '1', id))
  ring_post(P)
end

--- restore
--@ claimed read parse
--@ endings deaths bury newer requeue untold
--@ claimed forget over
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
      tell_of_burial(P, id)
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
--@ endings unqueue
local function drop_queued(P, id)
  redis.call('UNLINK', P .. 'payloads:' .. id)
  redis.call('HDEL', P .. 'payloads', id)
  unqueue(P, id)
end

--- drop_from
--@ endings drop
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
