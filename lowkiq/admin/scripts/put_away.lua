--! once
-- put_away: delete jobs of the queue or of the morgue, and keep them for a while, so that it can be undone (put_back).
-- Repeating it changes nothing: an id that is kept under a name already is not deleted again, be it queued again.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 'queue', 'failed' (of the queue, only jobs that have failed) or 'morgue', 3 a name for all that is
--       undone together, 4 seconds for which it is kept, then ids
-- returns {how many were deleted, how many of that name are kept}   errors: LAYOUT, NEWER, RESHARDED, MOVING
-- The hash undo:NAME has for each id where it was, when it was due or got into the morgue, its retry_count, error, what
-- held its payloads, deaths, deaths in a crowd, checkpoint, tags, tenant, rules (fewer.lua), and how many are done of those that
-- it waits for, each behind its length and a colon, or as "-" if there is none. Several payloads are in the zset undo:NAME:ID,
-- and what it waits for in undo_waits:NAME:ID.
--@ moving whole
--@ payloads get
--@ endings drop_from
--@ kept keep
local P, which, kept = KEYS[1], ARGV[2], KEYS[1] .. 'undo:' .. ARGV[3]
local refusal = check_whole(P, ARGV[1])
if refusal then return refusal end
local is_dead = which == 'morgue'
local index, payloads, errors, waits = 'due', 'payloads', 'errors', 'waits'
if is_dead then index, payloads, errors, waits = 'morgue', 'morgue:payloads', 'morgue:errors', 'morgue:waits' end

local function read(name, id) return redis.call('HGET', P .. name, id) end

-- Where it goes before it is gone from where it was: a rename does both.
local function move(zset, to)
  if redis.call('EXISTS', zset) == 0 then return end
  redis.call('RENAME', zset, to)
  redis.call('EXPIRE', to, ARGV[4])
end

local function put_away(id)
  local held = payloads_get(P .. payloads, id)
  -- What waited behind a run is due then; what the shard knows of an id that runs is of that run, and stays.
  local at = not is_dead and read('behind', id) or redis.call('ZSCORE', P .. index, id)
  local is_alone = not is_dead and not claim_of(P, id)
  keep_job(kept, id, {
    is_dead and 'morgue' or 'queue', at or '0', not is_dead and redis.call('ZSCORE', P .. 'retries', id),
    (is_dead or is_alone) and read(errors, id), held, is_alone and read('crashes', id),
    is_alone and read('crowds', id), is_alone and read('checkpoints', id), read(is_dead and 'morgue:tags' or 'tags', id),
    read('tenants', id), not is_dead and read('rules', id), read(waits, id),
  }, ARGV[4])
  move(P .. waits .. ':' .. id, P .. 'undo_waits:' .. ARGV[3] .. ':' .. id)
  if held == '*' then move(P .. payloads .. ':' .. id, kept .. ':' .. id) end
end

local dropped = 0
for i = 5, #ARGV do
  if is_in(P, which, ARGV[i]) and redis.call('HEXISTS', kept, ARGV[i]) == 0 then
    put_away(ARGV[i])
    drop_from(P, which, ARGV[i])
    dropped = dropped + 1
  end
end
return {dropped, redis.call('HLEN', kept)}
