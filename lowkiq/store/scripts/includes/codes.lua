-- A named code and what it means; store/errors.py turns codes into exceptions.
local function refuse(code, text)
  return redis.error_reply(code .. ' ' .. text)
end
