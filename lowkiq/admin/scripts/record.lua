-- record: add a sample to the history of queues, in each of its spans. A span is a list of records of equal steps; within
-- a step, gauges keep their highest value and counters their last. Repeating it changes nothing.
-- KEYS  series prefixes, e.g. lowkiq:{history}:orders:
-- ARGV  1 number of spans, then for each of them its name, its step in seconds and how many records it keeps; then for
--       each key a sample: the gauges length, retries, busy, morgue_length, lag, and the counters processed, failed,
--       pushed, merged, separated by spaces
-- returns nothing
--@ shard now count attempt
local GAUGES = 5
local now = now_us() / 1000000
local spans = tonumber(ARGV[1])

-- Records of a time to come are of a clock that was set back since.
local function drop_ahead(key, at, keep)
  local ahead = 0
  while ahead < keep and (tonumber(string.match(redis.call('LINDEX', key, -1 - ahead) or '', '^%d+')) or 0) > at do
    ahead = ahead + 1
  end
  if ahead > 0 then redis.call('LTRIM', key, 0, -1 - ahead) end
end

local function words(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do found[#found + 1] = word end
  return found
end

-- The record with what the sample adds to its step. A newer Lowkiq's may have more columns, which stay.
local function merged(record, sample)
  for i = 1, #sample do
    local old = record[i + 1]
    local highest = i <= GAUGES and tonumber(old) or 0
    record[i + 1] = highest > tonumber(sample[i]) and old or sample[i]
  end
  return table.concat(record, ' ')
end

local function add(key, at, step, keep, sample)
  drop_ahead(key, at, keep)
  local last = words(redis.call('LINDEX', key, -1) or '')
  local last_at = tonumber(last[1]) or 0
  if last_at == at then
    redis.call('LSET', key, -1, merged(last, sample))
  else
    redis.call('RPUSH', key, string.format('%d ', at) .. table.concat(sample, ' '))
    redis.call('LTRIM', key, -keep, -1)
    redis.call('EXPIRE', key, step * keep)
  end
end

for i = 1, SHARDS do
  local sample = words(ARGV[1 + spans * 3 + i])
  for n = 0, spans - 1 do
    local name, step, keep = ARGV[2 + n * 3], tonumber(ARGV[3 + n * 3]), tonumber(ARGV[4 + n * 3])
    attempt(add, KEYS[i] .. name, math.floor(now / step) * step, step, keep, sample)
  end
end
