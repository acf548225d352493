--! allow-oom
-- settle: end jobs of a claim. Repeating it changes nothing: ids no longer in the claim are skipped, other claims are
-- left alone, and the counters count what really moved (I5).
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the claim, 4 what becomes of the jobs not named: 'keep', 'ack' or 'release',
--       5 '1' if any of those may hold several payloads; then lists, each with its length in front:
--       spoiled (payloads that can't be decoded): id, payload, error · acked: id · released: id ·
--       failed: id, retry_count, delay in seconds, error · snoozed: id, delay in seconds, 'snoozed' or, of one that has not
--       run, as its rate did not let it, 'limited' · ended: id, error, fate (below), or id, max_crashes, 'crash' or 'crowd' · ran, which may be left out:
--       those of the released that had started · and, without a length, letters (letters.lua): id, record; each is sent if the id is
--       named as acked, and was still in the claim
-- returns {acked, failed, buried, next due or '', now}   errors: FENCED, INVALID (a number can't be one)

-- Most settles end a claim of which every job is done, and had one payload. They are done here, before functions are made
-- (claim.lua tells why), all others are left to what follows, with nothing changed.
if #ARGV == 11 and ARGV[4] == 'ack' and ARGV[5] == '0' then
  local P = KEYS[1]
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
  local is_ours = owner[1] == ARGV[1] and owner[2] == ARGV[2] and owner[3] == ARGV[3]
  local last_score = tonumber(redis.call('HGET', P .. 'meta', 'last_score') or 0)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local is_usual = is_ours and last_score <= now
    and redis.call('EXISTS', HINDERS.settle) == 0
  if is_usual then
    local acked = redis.call('LLEN', P .. 'claim') / 2
    -- The first write is one that Redis does not refuse when memory is full.
    redis.call('UNLINK', P .. 'claim')
    if acked > 0 then redis.call('HINCRBY', P .. 'meta', 'processed', acked) end
    local oldest = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')[2]
    if oldest == 'inf' then oldest = nil end -- all that is left waits behind other claims
    if not oldest or oldest * 1000000 > now then redis.call('HSET', P .. 'owner', 'waiting', oldest or 'inf') end
    return {acked, 0, 0, oldest or '', time[1] .. '.' .. string.sub('00000' .. time[2], -6)}
  end
end

--@ shard clock oom
--@ away held
--@ endings restore deaths newer untold
--@ claimed acquit forget over never
--@ deaths crowd
--@ parking unpark
--@ fewer unspace
--@ cancelling mark
--@ payloads fold
--@ bell oldest_due ring
--@ notes note all
--@ lanes forget
--@ letters write post
--@ waiting gone
local P = KEYS[1]
-- The claim; and its jobs, once something needs more of it than their number: what is left of it is written at the end.
local refusal, claim = held_claim(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
local ids, records
local has_changed = false

local now = shard_now(P)

local function is_finite(text)
  local number = tonumber(text)
  return number and number == number and math.abs(number) ~= math.huge
end

-- The only numbers that Redis could refuse half-way are those of failed and snoozed jobs: the fourth list and the fifth.
local at = 6
for _, width in ipairs({3, 1, 1}) do at = at + 1 + ARGV[at] * width end
for i = at + 1, at + ARGV[at] * 4, 4 do
  if not (is_finite(ARGV[i + 1]) and is_finite(ARGV[i + 2])) then
    return refuse('INVALID', 'retry_count ' .. ARGV[i + 1] .. ', delay ' .. ARGV[i + 2] .. ' of a failed job')
  end
end
at = at + 1 + ARGV[at] * 4
for i = at + 2, at + ARGV[at] * 3, 3 do
  if not is_finite(ARGV[i]) then return refuse('INVALID', 'delay ' .. ARGV[i] .. ' of a snoozed job') end
end

for _ = 1, 2 do at = at + 1 + ARGV[at] * 3 end
local ran, letters_at = {}, at + 1 + (ARGV[at] or 0)
for i = at + 1, letters_at - 1 do ran[ARGV[i]] = true end

local acked, failed, buried = 0, 0, 0

local function open_claim()
  if not records then ids, records = read_claim(claim) end
end

local function record_of(id)
  open_claim()
  return records[id]
end

local function put(id, record)
  records[id] = record
  has_changed = true
end

local function take(id)
  local record = record_of(id)
  if not record then return nil end
  put(id, nil)
  return parse_claimed(P, claim, record)
end

-- The ids that are done; and all whose mark, if they have one, is to go (cancelling.lua).
local done, over = {}, {}

-- Something else than its claim may speak of an id; mostly nothing does.
local is_known_elsewhere
local function is_any_known_elsewhere()
  if is_known_elsewhere == nil then
    is_known_elsewhere = redis.call('EXISTS', HINDERS.parting) > 0
  end
  return is_known_elsewhere
end

-- These ids are done with, until they are pushed again.
local function let_go(ids)
  if not is_any_known_elsewhere() then return end
  unpark(P, now, ids)
  forget(P, unpack(ids))
  for _, id in ipairs(ids) do over[#over + 1] = id end
end

local function ack(id)
  local _, _, held = take(id)
  if not held then return end
  if held == '*' then redis.call('UNLINK', P .. 'claim:' .. id) end
  done[#done + 1] = id
  done[id] = true
end

local function give_back(id, due)
  local perform_in, retry_count, held = take(id)
  if held then requeue(P, id, held, due or perform_in, retry_count) end
  if held and not ran[id] then unspace(P, id) end
  if held then note(P, 'released', id, ARGV[1]) end
end

-- What goes back after the same delay keeps its order, a microsecond apart.
local place = now
local function due_after(delay)
  place = place + 1
  return stamp(place - 1 + delay * 1000000)
end

local function fail(id, retry_count, delay, error)
  local _, _, held = take(id)
  if not held then return end
  requeue(P, id, held, due_after(delay), retry_count)
  acquit(P, id)
  redis.call('HSET', P .. 'errors', id, error)
  note(P, 'failed', id, ARGV[1], error)
  failed = failed + 1
end

-- Not a failure: all but the due time stays as it was, and what was pushed meanwhile comes along.
local function snooze(id, delay, kind)
  local _, retry_count, held = take(id)
  if not held then return end
  requeue(P, id, held, due_after(delay), retry_count)
  if kind == 'snoozed' then acquit(P, id) else unspace(P, id) end
  note(P, kind, id, ARGV[1])
end

local function note_burial(id, error)
  note(P, 'buried', id, ARGV[1], error)
  failed = failed + 1
  buried = buried + 1
end

-- `left`: the score of the next of its payloads that are still claimed, if any is.
local function bury(id, score, payload, error, left)
  payloads_add(P .. 'morgue:payloads', id, score, payload)
  morgue_entry(P, id, error, now)
  note_newer(P, id, score, left)
  note_burial(id, error)
end

-- Takes the lowest-scored payload off, the rest start anew.
local function split_off(id, held)
  local score, payload
  if held == '*' then
    local lowest = redis.call('ZPOPMIN', P .. 'claim:' .. id)
    payload, score = lowest[1], lowest[2]
    requeue(P, id, '*', due_after(0), -1)
    if redis.call('HGET', P .. 'payloads', id) == '*' then payloads_fold(P .. 'payloads', id) end
  else
    score, payload = split(held)
  end
  let_go({id})
  return score, payload
end

-- The lowest-scored payload goes to the morgue.
local function exhaust(id, error)
  local _, _, held = take(id)
  if not held then return end
  copy_tags(P, 'claimed_tags', 'morgue:tags', id)
  local score, payload = split_off(id, held)
  bury(id, score, payload, error)
end

-- The lowest-scored payload is gone.
local function discard(id, error)
  local _, _, held = take(id)
  if not held then return end
  split_off(id, held)
  note(P, 'discarded', id, ARGV[1], error)
  failed = failed + 1
end

-- All payloads stay, and wait for a person; so does what was pushed meanwhile.
local function block(id, error)
  local _, _, held = take(id)
  if not held then return end
  redis.call('ZADD', P .. 'blocked', stamp(now), id)
  requeue(P, id, held, NEVER, -1)
  acquit(P, id)
  redis.call('HSET', P .. 'errors', id, error)
  note(P, 'blocked', id, ARGV[1], error)
  failed = failed + 1
end

-- All payloads that were handed over go to the morgue.
local function bury_all(id, error)
  local _, _, held = take(id)
  if not held then return end
  local score = held == '*' and redis.call('ZRANGE', P .. 'claim:' .. id, 0, 0, 'WITHSCORES')[2] or split(held)
  copy_tags(P, 'claimed_tags', 'morgue:tags', id)
  claimed_into(P, P .. 'morgue:payloads', id, held)
  let_go({id})
  morgue_entry(P, id, error, now)
  note_newer(P, id, score)
  note_burial(id, error)
end

-- It goes to the morgue for so many deaths.
local function bury_for(id, died)
  bury_all(id, text_of_deaths(died))
  tell_of_burial(P, id)
end

-- The process that ran it, and nothing else, has died (deaths.lua).
local function crash(id, max_crashes)
  if not record_of(id) then return end
  local died = (tonumber(redis.call('HGET', P .. 'crashes', id)) or 0) + 1
  if died >= tonumber(max_crashes) then
    bury_for(id, died)
  else
    redis.call('HSET', P .. 'crashes', id, string.format('%.0f', died))
    ran[id] = true
    give_back(id)
  end
end

-- What makes such processes has died: one of several has done it, or nobody.
local function crash_in_a_crowd(id)
  if not record_of(id) then return end
  local died, due = count_crowd(P, id, now)
  if died then return bury_for(id, died) end
  ran[id] = true
  give_back(id, due)
end

-- Fates of jobs that are not tried again; or, of one that has crashed, that may be.
local FATES = {
  bury = exhaust, bury_all = bury_all, block = block, discard = discard, crash = crash, crowd = crash_in_a_crowd,
}

local function finish(id, error, fate)
  FATES[fate](id, error)
end

-- Only the payload goes to the morgue; what it leaves in the claim is settled like the rest of the id.
local function spoil(id, payload, error)
  local record = record_of(id)
  if not record then return end
  local perform_in, retry_count, held = parse_claimed(P, claim, record)
  local score, left
  if held == '*' then
    local zset = P .. 'claim:' .. id
    score = redis.call('ZSCORE', zset, payload)
    if not score then return end
    copy_tags(P, 'claimed_tags', 'morgue:tags', id)
    redis.call('ZREM', zset, payload)
    left = redis.call('ZRANGEBYSCORE', zset, score, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if redis.call('ZCARD', zset) == 1 then
      local last = redis.call('ZPOPMIN', zset)
      put(id, perform_in .. ':' .. retry_count .. ':' .. last[2] .. ':' .. last[1])
    end
  else
    local held_payload
    score, held_payload = split(held)
    if held_payload ~= payload then return end
    copy_tags(P, 'claimed_tags', 'morgue:tags', id)
    put(id, nil)
    let_go({id})
  end
  bury(id, score, payload, error, left)
end

local function drop_cancelled(id)
  if not (record_of(id) and is_cancelled(P, claim, id)) then return false end
  local _, _, held = take(id)
  drop_claimed(P, now, id, held)
  note(P, 'cancelled', id, ARGV[1])
  over[#over + 1] = id
  return true
end

local cursor = 6 -- where the length of the next list is

local function each(action, width)
  local first = cursor + 1
  cursor = first + ARGV[cursor] * width
  for i = first, cursor - 1, width do
    if action == ack or not drop_cancelled(ARGV[i]) then action(unpack(ARGV, i, i + width - 1)) end
  end
end

free_first(P)
if claim then
  each(spoil, 3)
  each(ack, 1)
  each(give_back, 1)
  each(fail, 4)
  each(snooze, 3)
  each(finish, 3)
  if ARGV[4] == 'ack' and (records or ARGV[5] == '1') then
    open_claim()
    for _, id in ipairs(ids) do ack(id) end
  elseif ARGV[4] == 'ack' then
    -- The claim is read only when something else than itself could speak of its ids.
    acked = redis.call('LLEN', claim.key) / 2
    if acked > 0 and (is_any_known_elsewhere() or is_noting(P)) then
      local ids = read_claim(claim)
      let_go(ids)
      note_all(P, 'done', ids, ARGV[1])
    end
    end_claim(P, claim)
  end
  for i = letters_at, #ARGV, 2 do
    if done[ARGV[i]] then write_letter(P, ARGV[i + 1]) end
  end
  if #done > 0 then
    let_go(done)
    note_all(P, 'done', done, ARGV[1])
    acked = #done
  end
  if has_changed then
    local left = {}
    for _, id in ipairs(ids) do
      if records[id] then left[#left + 1], left[#left + 2] = id, records[id] end
    end
    if #left > 0 then -- first where it goes, then from where it was
      redis.call('RPUSH', claim.key, unpack(left))
      redis.call('LTRIM', claim.key, #ids * 2, -1)
    else
      end_claim(P, claim)
    end
  end
  if ARGV[4] == 'release' then restore_claim(P, now, claim, {}) end
  unmark(P, over)
  forget_tenants(P, over)
  tell_if_gone(P, over)
  if acked > 0 then redis.call('HINCRBY', P .. 'meta', 'processed', acked) end
  if failed > 0 then redis.call('HINCRBY', P .. 'meta', 'failed', failed) end
end
if not (claim and claim.epoch) then return {acked, failed, buried, oldest_due(P, now), stamp(now)} end
-- It is away: the owner, who does not look, is to learn of what waited behind it, comes back or follows.
local oldest = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')[2]
if oldest and tonumber(oldest) < tonumber(NEVER) then ring(P, oldest * 1000000, now) end
if letters_at < #ARGV then ring_post(P) end
return {acked, failed, buried, '', stamp(now)}
