-- add_times: add what a node has counted, waits and runs, to sums of queues and days. Repeating it changes nothing, for
-- what a node adds is numbered, and the last number is kept. A sum that can't be read begins anew.
-- KEYS  1 the last number of the node; then sums
-- ARGV  1 number, 2 seconds for which it is kept, 3 seconds for which sums are kept after their last change, 4 bytes of a sum
--       at most, 5 number of its last bucket; then for each sum what is added: waits and runs, as durations.py writes them,
--       with a | in between
-- returns 1, or 0 if it was added before
--@ shard attempt
local most_bytes, last_bucket = tonumber(ARGV[4]), tonumber(ARGV[5])

-- count, total and squares of lengths of time, and their counts by bucket; nil if that is not what the text says.
local function parse(text)
  local sums, counts, bucket, gap = {}, {}, 0, nil
  for word in string.gmatch(text, '%S+') do
    local number = tonumber(word)
    if not number or not (number >= 0 and number < math.huge) then return nil end
    if #sums < 3 then
      sums[#sums + 1] = number
    elseif not gap then
      gap = number
    else
      bucket, gap = bucket + gap, nil
      if bucket > last_bucket or bucket % 1 > 0 then return nil end
      counts[bucket] = number
    end
  end
  return #sums == 3 and not gap and sums or nil, counts
end

local function merged(old, new)
  local sums, counts = parse(old or '')
  if not sums then return new end
  local new_sums, new_counts = parse(new)
  for bucket, count in pairs(new_counts) do counts[bucket] = (counts[bucket] or 0) + count end
  local words = {string.format('%.0f %.17g %.17g', sums[1] + new_sums[1], sums[2] + new_sums[2], sums[3] + new_sums[3])}
  local last = 0
  for bucket = 0, last_bucket do
    if counts[bucket] then
      words[#words + 1] = string.format('%d %.0f', bucket - last, counts[bucket])
      last = bucket
    end
  end
  return table.concat(words, ' ')
end

local function add(key, addition)
  local old = attempt(redis.call, 'GETRANGE', key, 0, most_bytes) or ''
  local waits, runs = string.match(old, '^([^|]*)|([^|]*)$')
  local new_waits, new_runs = string.match(addition, '^([^|]*)|([^|]*)$')
  redis.call('SET', key, merged(waits, new_waits) .. '|' .. merged(runs, new_runs), 'EX', ARGV[3])
end

local number = tonumber(ARGV[1])
local last = string.match(attempt(redis.call, 'GETRANGE', KEYS[1], 0, 20) or '', '^%d+$')
-- One of more digits is none of ours, and would hold up all that is to come.
if last and #last <= 15 and tonumber(last) >= number then return 0 end
for i = 2, #KEYS do add(KEYS[i], ARGV[i + 4]) end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
