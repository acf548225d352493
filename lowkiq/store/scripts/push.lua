--@ clock
--@ layout
--@ bag
--@ set_back
--@ doorbell
-- push: put payloads into the queue. Repeating it while they are still queued changes nothing but the counters.
-- KEYS  1 shard prefix, e.g. lowkiq:{orders:7}:
-- ARGV  1 layout (shards_count), then for each job: id, payload, score ('' = after the last default one), perform_in
--       ('' = now)
-- returns {new, merged}   errors: LAYOUT (the queue has another shards_count), NEWER (and a layout of a newer Lowkiq)
local P = KEYS[1]
local refusal, is_new_shard, last_before, seen_before, pushed, merged_before = check_layout(P, ARGV[1])
if refusal then return refusal end

local now = shard_now(P, last_before)
last_before = tonumber(last_before)
local was_set_back = last_before > now
local last_score = last_before

local ids = {}
for i = 2, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local queued = redis.call('ZMSCORE', P .. 'due', unpack(ids))

-- The first write is one that Redis refuses when memory is full, so that a refused push has changed nothing.
if is_new_shard then redis.call('HSET', P .. 'meta', 'layout', ARGV[1]) end

local due, payloads, seen = {}, {}, {}
local new, merged = 0, 0
local earliest = nil

local function flush()
  if #due == 0 then return end
  redis.call('ZADD', P .. 'due', unpack(due))
  redis.call('HSET', P .. 'payloads', unpack(payloads))
  due, payloads = {}, {}
end

for n = 1, #ids do
  local at = n * 4 - 2
  local id, payload, score, perform_in = ids[n], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  if score == '' then
    last_score = math.max(last_score + 1, now)
    score = stamp(last_score)
  end
  -- An id that came earlier in this call is flushed first, so that it merges like any other known one.
  if seen[id] then flush() end
  if queued[n] or seen[id] then
    bag_add(P .. 'payloads', id, score, payload)
    merged = merged + 1
  else
    -- A fresh job is due at its score, so that jobs of one call are claimed in their order; if the clock was set back,
    -- that lies ahead.
    local is_fresh = perform_in == '' and ARGV[at + 2] == '' and not was_set_back
    if is_fresh then perform_in = score elseif perform_in == '' then perform_in = stamp(now) end
    due[#due + 1] = perform_in
    due[#due + 1] = id
    payloads[#payloads + 1] = id
    payloads[#payloads + 1] = (is_fresh and ':' or score .. ':') .. payload
    seen[id] = true
    local due_us = tonumber(perform_in) * 1000000
    earliest = math.min(earliest or due_us, due_us)
    new = new + 1
    if #due >= CHUNK then flush() end
  end
end
flush()

last_score = math.max(last_score, now)
-- One command for all three: a push of one job is mostly what its commands cost.
redis.call('HSET', P .. 'meta', 'last_score', string.format('%.0f', last_score),
  'pushed', string.format('%.0f', pushed + #ids), 'merged', string.format('%.0f', merged_before + merged))
if seen_before then see(P, now, was_set_back, tonumber(seen_before)) end
if earliest then ring(P, earliest, was_set_back and now or last_score) end
return {new, merged}
