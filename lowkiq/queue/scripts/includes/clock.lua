-- Redis's clock in whole microseconds (a double holds them exactly), and the form in which times are stored:
-- six decimals, because tostring would cut them.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Scores run ahead of the clock by a microsecond a payload, so by far less than this; if more, the clock was set back.
local SET_BACK = 1000000

-- The time by which jobs of a shard are due: not behind the last score that a push was given, so that what was pushed
-- in one call is due at once though scores rise through it. If the clock was set back it is the clock's (set_back.lua).
local function shard_now(P, last_score)
  local now = now_us()
  local last = tonumber(last_score or redis.call('HGET', P .. 'meta', 'last_score')) or 0
  return last > now and last - now < SET_BACK and last or now
end

-- Whole numbers, of which only the last digits change in a call, are written in a fifth of the time that '%.6f' takes.
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
