-- Redis's clock in whole microseconds (a double holds them exactly), and the form in which times are stored:
-- six decimals, because tostring would cut them.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function stamp(us)
  return string.format('%.6f', us / 1000000)
end
