-- home: whether an id still is in an old shard (moving.lua), where it is looked up, and acted upon, until it has moved.
-- KEYS  1 shard prefix
-- ARGV  1 id, then of which keys, by their names, anything counts that they have of it; of all if none are given
-- returns 1, or 0 if the shard was moved, and has nothing of it any more
--@ sides move
local P, id, wanted = KEYS[1], ARGV[1], {}
for i = 2, #ARGV do wanted[ARGV[i]] = true end

local function has(name, kind)
  if #ARGV > 1 and not wanted[name] then return false end
  if kind == 'hash' then return redis.call('HEXISTS', P .. name, id) == 1 end
  return redis.call('ZSCORE', P .. name, id) ~= false
end

local is_moved = string.sub(redis.call('HGET', P .. 'meta', 'layout') or '', -6) == ':moved'
if not is_moved or has('payloads', 'hash') or has('morgue:payloads', 'hash') then return 1 end
for _, side in ipairs(SIDES) do
  if has(side[1], side[2]) then return 1 end
end
return 0
