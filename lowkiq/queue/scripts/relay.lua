--! allow-oom
-- relay: note which letters of a shard have arrived, and read those that come next (letters.lua). Repeating it
-- changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 the number behind which to read, 4 most letters, 5 most bytes (the last one may exceed it), then
--       of each that has arrived: its name, and what gives its place to, '' for nothing
-- returns {name, number, record, ...}, nothing while jobs move to the shard   errors: FENCED
--@ shard owner oom
--@ waiting tell_all
local P, most, most_bytes = KEYS[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local refusal = fence(P, ARGV[1], ARGV[2])
if refusal then return refusal end

-- What moves here may come a second time until all has come (moving.lua).
if redis.call('EXISTS', P .. 'feeders') == 1 then return {} end

if #ARGV > 5 then free_first(P) end
for i = 6, #ARGV, 2 do
  local name, record = ARGV[i], ARGV[i + 1]
  if record == '' then
    redis.call('ZREM', P .. 'outbox', name)
    redis.call('HDEL', P .. 'letters', name)
  elseif redis.call('HEXISTS', P .. 'letters', name) == 1 then
    redis.call('HSET', P .. 'letters', name, record)
  end
end

local STEP = 50 -- read at a time: a thousand large ones are not, before the bytes are full
local reply, bytes, count, told, after = {}, 0, 0, 0, ARGV[3]
while count < most and bytes < most_bytes do
  local found = redis.call('ZRANGEBYSCORE', P .. 'outbox', '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0,
    math.min(STEP, most - count))
  if #found == 0 then break end
  for i = 1, #found, 2 do
    if bytes >= most_bytes then break end
    local name, number = found[i], found[i + 1]
    local record = redis.call('HGET', P .. 'letters', name) or ''
    if string.sub(record, 1, 1) == '*' then
      -- Those letters come behind all that are here.
      if told < most then told = told + tell_all(P, name, number, string.sub(record, 2), most - told) end
    else
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = name, number, record
      bytes, count = bytes + #record, count + 1
    end
  end
  after = found[#found]
end
return reply
