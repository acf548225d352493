-- A fresh job has one payload, whose score is when it is due. Its record, in the queue as in the claim, is four bytes and
-- the payload: the last 31 bits of that time in microseconds, behind a 1, which no text has there. So a claim takes it as
-- it is, and asks for the due time of its last job only, from which those of the others follow: up to Redis 7.0, to print
-- a score takes longer than all else that is done for a job.
local SPAN = 2 ^ 31 -- 36 minutes

local function fresh(us, payload)
  local low = us % SPAN
  local a, b, c = low % 2 ^ 24, low % 65536, low % 256
  return string.char(128 + (low - a) / 2 ^ 24, (a - b) / 65536, (b - c) / 256, c) .. payload
end

local function is_fresh(record)
  return string.byte(record) >= 128
end

-- When a fresh job is due that is due by `last`, and less than SPAN before.
local function fresh_us(record, last)
  local a, b, c, d = string.byte(record, 1, 4)
  return last - (last - (((a - 128) * 256 + b) * 256 + c) * 256 - d) % SPAN
end
