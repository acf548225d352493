-- Fewer runs: debounce, throttle and keep (fewer.py), as pushes ask for them in one word of a job,
-- "wait:at_most:throttle:keep", seconds and a rule, each of which may be '' where a push does not speak of it; '0' and 'all' end
-- what an earlier push has asked for. The rule may be 'lowest', too: all payloads are kept, and of equal ones the lowest score,
-- as the original has it (equal="first").
--
-- `rules` has "throttle:keep" of ids that are queued or claimed: what a push has said last, for the runs that follow it, retries
-- among them. `spaced` is a zset of ids that have started under a throttle: until when they do not start again, by the clock
-- itself, which `due` may run ahead of. `debounced` has "due latest" of ids that wait for a pause in their pushes: when that
-- push had them due, and the latest time that a further one may move them to.
--
-- No mark of `debounced` counts unless the id is still due when the mark says. So whatever else moves it, a retry, a person, or a
-- run that it is parked behind, ends its debounce, and need not know of it.

--- debounce
--@ shard stamp
-- When an id is due that was pushed so, in microseconds, `place` being now. nil: where it stands, or at once.
local function debounced_due(P, id, fewer, place, is_queued)
  local latest = place + fewer.at_most * 1000000
  if is_queued then
    local mark = redis.call('HGET', P .. 'debounced', id)
    if not mark and redis.call('EXISTS', P .. 'feeders') == 1 then
      -- It comes with what is still to come of the id (adopt.lua), and is moved then.
      redis.call('HSET', P .. 'debounced', id, stamp(math.min(place + fewer.wait * 1000000, latest)) .. ' ' .. stamp(latest))
      return nil
    end
    local at, known = string.match(mark or '', '^(%S+) (%S+)$')
    if not at or tonumber(redis.call('ZSCORE', P .. 'due', id)) ~= tonumber(at) then return nil end
    -- Later than this it would be only of a clock that was set back since.
    latest = math.min(latest, known * 1000000)
  end
  return math.min(place + fewer.wait * 1000000, latest), latest
end

--- until
--@ shard stamp
-- Until when an id does not start again, in microseconds, of what `spaced` has of it, and its throttle in seconds if it has one.
-- What lies farther ahead than that is of a clock that was set back since, or of an earlier, longer throttle.
local function spaced_until(P, id, spaced, throttle, now)
  local until_us = math.floor((tonumber(spaced) or 0) * 1000000 + 0.5)
  if throttle and until_us > now + throttle * 1000000 then
    until_us = now + throttle * 1000000
    redis.call('ZADD', P .. 'spaced', stamp(until_us), id)
  end
  return until_us
end

--- due
--@ shard stamp
--@ fewer debounce until
-- When an id is due that was pushed so, in microseconds; nil: where it stands, or at once. One that may not start yet is put
-- where it may: so no claim comes upon it before.
local function fewer_due(P, id, fewer, place, is_queued)
  local due, latest
  if fewer.wait then
    due, latest = debounced_due(P, id, fewer, place, is_queued)
  end
  if is_queued and not due then return nil end
  local throttle = tonumber(fewer.throttle)
  if throttle and throttle > 0 then
    local until_us = spaced_until(P, id, redis.call('ZSCORE', P .. 'spaced', id), throttle, place)
    if until_us > (due or place) then due = until_us end
  end
  if latest then redis.call('HSET', P .. 'debounced', id, stamp(due) .. ' ' .. stamp(latest)) end
  return due
end

--- keep
--@ payloads split get
--@ notes note
-- By rule 'last' the payload with the highest score is kept, and of equal scores that which came later; by 'first' the lowest,
-- and the earlier. All others are superseded, and counted.
local function is_kept(keep, score, earlier_score)
  if keep == 'last' then return tonumber(score) >= tonumber(earlier_score) end
  return tonumber(score) < tonumber(earlier_score)
end

-- The one that is kept of a zset of payloads, its score, and how many others there are.
local function kept_of(zset, keep)
  local found = redis.call(keep == 'last' and 'ZREVRANGE' or 'ZRANGE', zset, 0, 0, 'WITHSCORES')
  return found[1], found[2], redis.call('ZCARD', zset) - 1
end

local function supersede(P, id, gone)
  if gone == 0 then return end
  redis.call('HINCRBY', P .. 'meta', 'superseded', gone)
  note(P, 'superseded', id, '', string.format('%d', gone))
end

-- Keeps one of the payloads that are queued of an id and, if there is one, this further one, which came last.
local function keep_one(P, id, keep, score, payload)
  local key, zset = P .. 'payloads', P .. 'payloads:' .. id
  local held = payloads_get(key, id)
  local kept, kept_score, gone
  if held == '*' then
    kept, kept_score, gone = kept_of(zset, keep)
    if payload and not redis.call('ZSCORE', zset, payload) then gone = gone + 1 end
  else
    kept_score, kept = split(held)
    gone = payload ~= kept and 1 or 0
  end
  if payload and is_kept(keep, score, kept_score) then kept_score, kept = score, payload end
  redis.call('HSET', key, id, kept_score .. ':' .. kept)
  if held == '*' then redis.call('UNLINK', zset) end
  supersede(P, id, gone)
end

--- keeping
--@ rules known keep_of
--@ fewer keep
-- What comes back to a queued id, as from a claim, was pushed before all that is queued of it. Returns true, with one payload
-- kept of all, if that is the id's rule: `held` is "score:payload", or '*' for those of a zset, which is gone then. And whenever
-- the id is due now, that is not since it was debounced.
local function keep_with(P, id, held, zset)
  if not is_any_ruled(P) then return false end
  redis.call('HDEL', P .. 'debounced', id)
  local keep = keep_of(P, id)
  if not keep then return false end
  local gone, kept, kept_score = 0, nil, nil
  if held == '*' then
    kept, kept_score, gone = kept_of(zset, keep)
    if not kept then return true end -- it came back, before something after it was refused
  else
    kept_score, kept = split(held)
  end
  if redis.call('HGET', P .. 'payloads', id) == '*' then keep_one(P, id, keep) end
  local queued = payloads_get(P .. 'payloads', id)
  if queued then
    local score, payload = split(queued)
    if payload ~= kept then gone = gone + 1 end
    if is_kept(keep, score, kept_score) then kept_score, kept = score, payload end
  end
  redis.call('HSET', P .. 'payloads', id, kept_score .. ':' .. kept)
  if held == '*' then redis.call('UNLINK', zset) end
  supersede(P, id, gone)
  return true
end

--- expire
local SPARE = 3600 -- seconds after which what no claim has forgotten since is gone

-- The longest of these throttles lasts so many seconds.
local function keep_spaced(P, longest)
  if redis.call('PTTL', P .. 'spaced') < longest * 1000 then
    redis.call('EXPIRE', P .. 'spaced', string.format('%d', longest + SPARE))
  end
end

--- start
--@ shard stamp
--@ fewer expire

-- These ids start, so they are debounced no more; and those that are throttled do not start again before their time.
local function note_starts(P, ids, clock)
  redis.call('HDEL', P .. 'debounced', unpack(ids))
  local spaced, longest = {}, 0
  for i, rule in ipairs(redis.call('HMGET', P .. 'rules', unpack(ids))) do
    local throttle = tonumber(string.match(rule or '', '^[^:]+'))
    if throttle then
      spaced[#spaced + 1], spaced[#spaced + 2] = stamp(clock + throttle * 1000000), ids[i]
      longest = math.max(longest, math.ceil(throttle))
    end
  end
  if #spaced == 0 then return end
  redis.call('ZADD', P .. 'spaced', unpack(spaced))
  keep_spaced(P, longest)
end

--- spaced
--@ shard stamp
--@ payloads get kind
--@ lanes hint
--@ fewer until
local PRUNED = 1000 -- at a time: as many as a claim may add

-- Forgets ids that may start again by now. Returns whether any others are left.
local function is_any_spaced(P, clock)
  if redis.call('EXISTS', P .. 'spaced') == 0 then return false end
  local past = redis.call('ZRANGEBYSCORE', P .. 'spaced', '-inf', stamp(clock), 'LIMIT', 0, PRUNED)
  if #past > 0 then redis.call('ZREM', P .. 'spaced', unpack(past)) end
  return redis.call('EXISTS', P .. 'spaced') == 1
end

-- Puts off those of these due ids that may not start yet, until they may. Returns how many. They are put as far ahead as `now`,
-- by which they are due, is ahead of the clock: so none of them is met again at once.
local function put_off(P, ids, count, now, clock)
  local spaced = redis.call('ZMSCORE', P .. 'spaced', unpack(ids, 1, count))
  local rules = redis.call('HMGET', P .. 'rules', unpack(ids, 1, count))
  local later, full, off = {}, {}, {}
  for i = 1, count do
    local throttle = tonumber(string.match(rules[i] or '', '^[^:]+'))
    local until_us = spaced_until(P, ids[i], spaced[i], throttle, clock)
    if until_us > clock then
      off[#off + 1] = ids[i]
      later[#off * 2 - 1], later[#off * 2] = stamp(until_us + now - clock), ids[i]
    end
  end
  if #off == 0 then return 0 end
  for i, held in ipairs(redis.call('HMGET', P .. 'payloads', unpack(off))) do
    local is_short = held and is_compact(held) -- its score is its due time, which changes
    if is_short then full[#full + 1], full[#full + 2] = off[i], payloads_get(P .. 'payloads', off[i]) end
  end
  if #full > 0 then redis.call('HSET', P .. 'payloads', unpack(full)) end
  redis.call('ZADD', P .. 'due', unpack(later))
  for i, id in ipairs(off) do hint(P, id, later[i * 2 - 1]) end
  return #off
end

--- unspace
local has_spaced

-- A job was claimed and has not run: it may start at once, as before that claim.
local function unspace(P, id)
  if has_spaced == nil then has_spaced = redis.call('EXISTS', P .. 'spaced') == 1 end
  if has_spaced then redis.call('ZREM', P .. 'spaced', id) end
end
