--! allow-oom
-- acquire: take the lease of a shard that nobody holds, and return to the queue what its last owner left in hand. A
-- shard of an older layout gets this one. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 layout, 3 ttl in seconds, 4 max_crashes, 5 '1' if the shard is this node's part (a node that stands
--       in for it then learns, when it renews, that it is wanted), 6 the list that rings its thread ('' = by PUBLISH), 7 a number that
--       rises with each time that this node asks: what comes behind a later one was given up,
--       then of each node known to be dead its name, and what it ran of this shard (deaths.lua)
-- returns {'OWNED', epoch, next due or '', now, restored, buried, 1 if it has letters (letters.lua), 1 if something is parked
--       (look_at_parked.lua), 1 if claims of it are away (away.lua)} or {'HELD', holder, seconds until its lease ends}
-- errors: LAYOUT, NEWER, LATE
--@ shard clock layout oom
--@ bell ring_node oldest_due
--@ epochs next
--@ notes note
local P = KEYS[1]
local refusal, known_layout, last_score = check_layout(P, ARGV[2], true)
if refusal then return refusal end

local now = now_us()
local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'until', 'abandoned', 'wanted', 'ttl', 'claim',
  'asker', 'asked')
local holder, epoch, abandoned = owner[1], tonumber(owner[2]) or 0, owner[4]
local rest = (tonumber(owner[3]) or 0) - now / 1000000

local ran -- nil: its holder is not known to be dead
for i = 8, #ARGV, 2 do
  if ARGV[i] == holder then ran = ARGV[i + 1] end
end

local is_foreign = holder and holder ~= ARGV[1]

-- The node has asked before, and was given the lease, or has asked again since: it may run what it has claimed meanwhile.
if owner[8] == ARGV[1] and tonumber(owner[9]) >= tonumber(ARGV[7]) then
  if owner[9] ~= ARGV[7] or holder ~= ARGV[1] then return refuse('LATE', owner[9]) end
  local due_by = shard_now(P, last_score)
  return {'OWNED', owner[2], oldest_due(P, due_by), stamp(due_by), 0, 0, redis.call('EXISTS', P .. 'outbox'),
    redis.call('EXISTS', P .. 'behind'), redis.call('EXISTS', P .. 'away')}
end
if is_foreign and rest > 0 and not ran then
  -- A lease with more than its whole time left is of a clock that was set back since. It gets its whole time again: a
  -- holder that lives renews it anyway, and one that is dead is not waited for longer than ever.
  local ttl = tonumber(owner[6])
  if ttl and rest > ttl then
    free_first(P)
    redis.call('HSET', P .. 'owner', 'until', stamp(now + ttl * 1000000))
    rest = ttl
  end
  if ARGV[5] == '1' and owner[5] ~= ARGV[1] then
    free_first(P)
    redis.call('HSET', P .. 'owner', 'wanted', ARGV[1])
    ring_node(P, holder, 'wanted ' .. P)
  end
  return {'HELD', holder, string.format('%.6f', rest)}
end

-- All that only a claim needs is made here: mostly there is none.
local function restore()
--@ claimed in_hand
--@ endings restore
--@ away restore
--@ deaths death
--@ lanes left
  free_first(P)
  local restored, buried, due_by = 0, 0, shard_now(P, last_score)
  local claims, dead, max_crashes = claims_in_hand(P, owner[7]), {}, tonumber(ARGV[4])
  for i = 8, #ARGV, 2 do dead[ARGV[i]] = ARGV[i + 1] end
  for _, claim in ipairs(claims) do
    -- Dead is who held the shard and neither released nor abandoned it; only such a death counts against the jobs.
    if not claim.epoch then
      local doomed, pauses = {}, {}
      if is_foreign and not abandoned then
        doomed, pauses = count_death(P, claim, ran or '', max_crashes, due_by)
      end
      local returned, died = restore_claim(P, due_by, claim, doomed, 'restored', pauses)
      restored, buried = restored + returned, buried + died
    end
  end
  local returned, died, are_away = restore_away(P, claims, now, due_by, dead, max_crashes)
  restored, buried = restored + returned, buried + died
  if are_away == 0 then redis.call('UNLINK', P .. 'cancels') end
  if are_away == 0 and redis.call('EXISTS', P .. 'due') == 0 then
    redis.call('UNLINK', P .. 'checkpoints', P .. 'rules', P .. 'debounced')
    drop_lanes(P)
  end
  return restored, buried
end

if is_foreign and not abandoned then note(P, ran and 'death' or 'lease_lost', '', holder) end
local restored, buried = 0, 0
local is_moved = string.sub(known_layout or '', -6) == ':moved' -- then all is left to its mover, as it is (moving.lua)
local has_rare = not is_moved and redis.call('EXISTS', HINDERS.acquire) > 0
if has_rare then restored, buried = restore() end

local lead
epoch, lead = next_epoch(P, epoch, now)
-- Without a claim the first write is this one, which Redis does not refuse when memory is full.
redis.call('HDEL', P .. 'owner', 'abandoned', 'last_due', 'claim', 'alone', 'open', 'waiting', 'wanted', 'bell', 'rests')
if lead then redis.call('HSET', P .. 'meta', 'lead', lead) end
if known_layout ~= ARGV[2] then redis.call('HSET', P .. 'meta', 'layout', ARGV[2]) end
local lease = {'node', ARGV[1], 'epoch', epoch, 'until', stamp(now + ARGV[3] * 1000000), 'ttl', ARGV[3],
  'asker', ARGV[1], 'asked', ARGV[7]}
if ARGV[6] ~= '' then lease[13], lease[14] = 'bell', ARGV[6] end
-- Of what it owns now it has started nothing.
if has_rare and redis.call('EXISTS', P .. 'paused') == 1 then lease[#lease + 1], lease[#lease + 2] = 'rests', epoch end
redis.call('HSET', P .. 'owner', unpack(lease))
local due_by = shard_now(P, last_score)
return {'OWNED', epoch, oldest_due(P, due_by), stamp(due_by), restored, buried, redis.call('EXISTS', P .. 'outbox'),
  is_moved and 0 or redis.call('EXISTS', P .. 'behind'), redis.call('EXISTS', P .. 'away')}
