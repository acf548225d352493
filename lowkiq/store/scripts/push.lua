--@ clock
--@ layout
--@ bag
--@ doorbell
-- push: put payloads into the queue. Repeating it while they are still queued changes nothing but the counters.
-- KEYS  1 shard prefix, e.g. lowkiq:{orders:7}:
-- ARGV  1 layout (shards_count), then for each job: id, payload, score ('' = after the last default one), perform_in
--       ('' = now)
-- returns {new, merged}   errors: LAYOUT (the queue has another shards_count), NEWER (and a layout of a newer Lowkiq)
local P = KEYS[1]
local refusal, is_new_shard = check_layout(P, ARGV[1])
if refusal then return refusal end

local now = now_us()
local last_score = tonumber(redis.call('HGET', P .. 'meta', 'last_score')) or 0
local last_before = last_score

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
    local due_us = perform_in == '' and now or tonumber(perform_in) * 1000000
    due[#due + 1] = perform_in == '' and stamp(now) or perform_in
    due[#due + 1] = id
    payloads[#payloads + 1] = id
    payloads[#payloads + 1] = score .. ':' .. payload
    seen[id] = true
    earliest = math.min(earliest or due_us, due_us)
    new = new + 1
    if #due >= CHUNK then flush() end
  end
end
flush()

if last_score ~= last_before then
  redis.call('HSET', P .. 'meta', 'last_score', string.format('%.0f', last_score))
end
redis.call('HINCRBY', P .. 'meta', 'pushed', #ids)
if merged > 0 then redis.call('HINCRBY', P .. 'meta', 'merged', merged) end
if earliest then ring(P, earliest, now) end
return {new, merged}
