-- receive: take letters in (includes/letters.lua). Repeating it changes nothing: a push that was received is remembered, until
-- whoever has sent it says that it won't come again.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then of each letter nine words: name, kind, id, and of a push the others of its job, else ''
-- returns how many of them were news   errors: LAYOUT, NEWER, RESHARDED, MOVING (not all that the shard gets has come)
--@ shard refuse layout now
--@ pushing into
local P, WORDS = KEYS[1], 9
local refusal = check_layout(P, ARGV[1], true)
if refusal then return refusal end
if string.match(ARGV[1], '^3:') and redis.call('HEXISTS', P .. 'meta', 'whole') == 0 then
  return refuse('MOVING', 'not all that the shard gets has come')
end

local jobs, news = {}, 0

local function push_all()
  if #jobs > 0 then push_into(P, ARGV[1], now_us(), jobs, WORDS - 2, 1, #jobs / (WORDS - 2)) end
  jobs = {}
end

local function remember(id, name)
  local names = redis.call('HGET', P .. 'heard', id)
  if names and string.find(' ' .. names .. ' ', ' ' .. name .. ' ', 1, true) then return false end
  redis.call('HSET', P .. 'heard', id, names and names .. ' ' .. name or name)
  return true
end

local function forget_letter(id, name)
  local names = redis.call('HGET', P .. 'heard', id)
  if not names then return false end
  local left = {}
  for one in string.gmatch(names, '%S+') do
    if one ~= name then left[#left + 1] = one end
  end
  if #left > 0 then redis.call('HSET', P .. 'heard', id, table.concat(left, ' ')) else redis.call('HDEL', P .. 'heard', id) end
  return true
end

for at = 2, #ARGV, WORDS do
  local name, kind, id = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_news
  if kind == 'push' then
    is_news = remember(id, name)
    for word = at + 2, is_news and at + WORDS - 1 or 0 do jobs[#jobs + 1] = ARGV[word] end
  elseif kind == 'forget' then
    is_news = forget_letter(id, name)
  end
  if is_news then news = news + 1 end
end
push_all()
return news
