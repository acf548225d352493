-- note_alerts: these alerts are there now. Each keeps the time at which it was first told of, and one that nobody has told of
-- for a while is removed, so that it may flicker, and several may note. Repeating it changes nothing.
-- KEYS  1 lowkiq:alerts: alert → since when, and when it was last told of; '' → when anything was noted last
-- ARGV  1 how many are kept, 2 seconds for which one may be away, 3 seconds for which all are kept when nobody notes; then
--       for each alert its key and when it began ('' for now)
-- returns {{key, since, when it was told of last, key ...} of those that last, the same of those that are over}
--@ shard now
local now = now_us() / 1000000
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and (kind ~= 'hash' or redis.call('HLEN', KEYS[1]) > ARGV[1] * 2) then redis.call('UNLINK', KEYS[1]) end

local known, rows = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local since, told = string.match(rows[i + 1], '^(%d+%.?%d*) (%d+%.?%d*)$')
  known[rows[i]] = {tonumber(since), tonumber(told)}
end

local function text(time) return string.format('%.6f', time) end

local there, over, is_there = {}, {}, {[''] = true}
for i = 4, math.min(#ARGV, ARGV[1] * 2 + 3), 2 do
  local key = ARGV[i]
  -- A time to come is of a clock that was set back since.
  local since = math.min((known[key] or {})[1] or tonumber(ARGV[i + 1]) or now, now)
  is_there[key] = true
  redis.call('HSET', KEYS[1], key, text(since) .. ' ' .. text(now))
  there[#there + 1], there[#there + 2], there[#there + 3] = key, text(since), text(now)
end
for key, row in pairs(known) do
  if not is_there[key] then
    local is_away = row[1] and row[2] <= now and now - row[2] < tonumber(ARGV[2])
    local found = is_away and there or over
    if not is_away then redis.call('HDEL', KEYS[1], key) end
    if row[1] then found[#found + 1], found[#found + 2], found[#found + 3] = key, text(row[1]), text(row[2]) end
  end
end
redis.call('HSET', KEYS[1], '', text(now) .. ' ' .. text(now))
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {there, over}
