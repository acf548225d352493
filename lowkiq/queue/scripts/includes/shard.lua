-- Questions of scripts before they change a shard: who owns it, which layout it has, what time it is.

--- refuse
-- A named code and what it means; CODES of call.py has the exceptions.
local function refuse(code, text)
  return redis.error_reply(code .. ' ' .. text)
end

--- owner
--@ shard refuse
-- I1: only the node and epoch that own a shard change its claim. Returns a refusal, or nil and the last claim's number.
local function fence(P, node, epoch)
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
  if owner[1] ~= node or owner[2] ~= epoch then
    return refuse('FENCED', 'owned by ' .. (owner[1] or 'nobody') .. ' at epoch ' .. (owner[2] or '0'))
  end
  return nil, tonumber(owner[3]) or 0
end

--- layout
--@ shard refuse
-- The version of a layout, and its shards_count.
local function parse_layout(layout)
  local version, shards_count = string.match(layout, '^(%d+):(%d+)')
  return tonumber(version or 0), shards_count or layout -- nobody of ours has written what is none
end

-- I8: a caller with another shards_count, or an older layout, changes nothing; nor does one with a newer layout, unless
-- it `can_write_older`. A shard that was moved sends every caller on. Returns a refusal, or nil, the shard's layout (false
-- if it is new), and of its meta the last score that a push was given, `seen` (clock_back), pushed and `watched` (notes.lua); whoever
-- has read these already gives them.
local function check_layout(P, layout, can_write_older, meta)
  meta = meta or redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'watched')
  local known = meta[1]
  if known and known ~= layout then
    if string.sub(known, -6) == ':moved' then return refuse('RESHARDED', string.sub(known, 1, -7)) end -- moving.lua
    local version, shards_count = parse_layout(known)
    local our_version, our_shards_count = parse_layout(layout)
    if version > our_version then return refuse('NEWER', string.match(P, '{(.*):%d+}') .. ' ' .. version) end
    if shards_count ~= our_shards_count then
      return refuse('LAYOUT', 'the queue has shards_count ' .. shards_count .. ', the caller says ' .. our_shards_count ..
        ': set shards_count = ' .. shards_count .. ', or choose another queue_name and let the old queue run dry')
    end
    if not can_write_older then return refuse('LAYOUT', 'the shard has layout ' .. version .. ': it must be acquired') end
  end
  return nil, known, meta[2] or '0', meta[3], meta[4] or 0, meta[5]
end

--- count
-- How many of KEYS are shards, or series: on Cluster one more is named, which never exists (GUARD in call.py).
local SHARDS = string.sub(KEYS[#KEYS], -6) == ':guard' and #KEYS - 1 or #KEYS

--- attempt
-- What f returns; or nil, and the error, where a key or a value is of another kind than f takes it for. Whatever somebody
-- has written there is told of by `stats`, and must hide none of the others that the script looks at. Any other error is
-- raised.
local function attempt(f, ...)
  local ok, found = pcall(f, ...)
  if ok then return found end
  local text = type(found) == 'table' and found.err or tostring(found)
  if not string.find(text, 'WRONGTYPE', 1, true) and not string.find(text, 'attempt to ', 1, true) then error(found, 0) end
  return nil, text
end

--- each
--@ shard count attempt
-- f(first, last) for all of KEYS at once, as long as nothing is in its way; else for one after the other.
local function each(f)
  if not attempt(f, 1, SHARDS) then
    for i = 1, SHARDS do attempt(f, i, i) end
  end
end

--- oom
-- Redis 6 has no flag for scripts that may run when memory is full, but lets one go on whose first write frees.
local function free_first(P)
  redis.call('HDEL', P .. 'owner', '')
end

--- now
-- Redis's clock in whole microseconds: a double holds them exactly.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

--- stamp
-- Times are stored with six decimals, because tostring would cut them. Whole numbers, of which only the last digits
-- change in a call, are written in a fifth of the time that '%.6f' takes.
local EXACT = 2 ^ 53
local head, head_text = nil, nil

local function stamp(us)
  if not (us >= 0 and us < EXACT) then return string.format('%.6f', us / 1000000) end
  us = math.floor(us + 0.5)
  local rest, tens, ones = us % 1000, us % 100, us % 10
  if us - rest ~= head then
    head = us - rest
    head_text = string.format('%.0f.%03d', math.floor(us / 1000000), head / 1000 % 1000)
  end
  return head_text .. string.char(48 + (rest - tens) / 100, 48 + (tens - ones) / 10, 48 + ones)
end

--- set_back
-- Scores run ahead of the clock by a microsecond a payload, so by far less than this; if more, the clock was set back.
local SET_BACK = 1000000

--- clock
--@ shard now stamp set_back
-- The time by which jobs of a shard are due: not behind the last score that a push was given, so that what was pushed
-- in one call is due at once though scores rise through it. If the clock was set back it is the clock's (clock_back).
-- Who asks for many shards has the clock's time.
local function shard_now(P, last_score, now)
  now = now or now_us()
  local last = tonumber(last_score or redis.call('HGET', P .. 'meta', 'last_score')) or 0
  return last > now and last - now < SET_BACK and last or now
end

--- see
-- A push has seen the time: keeps meta's `seen` (clock_back).
local function see(P, now, was_set_back, seen)
  if not was_set_back then
    redis.call('HDEL', P .. 'meta', 'seen')
  elseif now > seen then
    redis.call('HSET', P .. 'meta', 'seen', string.format('%.0f', now))
  end
end

--- first_place
-- Where the first of several jobs is due that are made due at once: they keep their order a microsecond apart, behind all
-- that were given a place before, by a push or so. While the clock is set back, by the clock.
local function first_place(now, last_score)
  return last_score == now and now + 1 or now
end

--- note_time
--@ shard see
-- Something else than a push has queued jobs for now.
local function note_time(P, now, last_score, seen)
  if now > last_score then redis.call('HSET', P .. 'meta', 'last_score', string.format('%.0f', now)) end
  if seen then see(P, now, now < last_score, tonumber(seen)) end
end
