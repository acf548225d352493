-- A named code and what it means; CODES of call.py has the exceptions.
local function refuse(code, text)
  return redis.error_reply(code .. ' ' .. text)
end
