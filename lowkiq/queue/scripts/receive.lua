-- receive: take letters in (letters.lua). Repeating it changes nothing: a push that was received is remembered, until
-- whoever has sent it says that it won't come again; who asks, and who is told, may do so twice (waiting.lua).
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 the shard whose outbox they are in, 3 the epoch of its owner, 4 a number that rises with what that sends:
--       what comes behind a later one was given up, and may push what was forgotten; then of each letter ten words: name, kind, id, and what else its kind has; '' for those that it has not
-- returns how many of them were news   errors: LAYOUT, NEWER, RESHARDED, LATE, MOVING (not all that the shard gets has come)
--@ shard refuse now clock
--@ moving whole
--@ lanes hint
--@ pushing into
--@ holding release
--@ waiting asked end
--@ letters post
local P, WORDS = KEYS[1], 10
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end

-- Longer than a packet lives: a forgotten letter is of use to nobody else.
local KEPT = 600
local epoch, number = string.match(redis.call('HGET', P .. 'relayed', ARGV[2]) or '0 0', '^(%d+) (%d+)$')
local known, comes = tonumber(epoch), tonumber(ARGV[3])
if comes < known or comes == known and tonumber(ARGV[4]) < tonumber(number) then
  return refuse('LATE', epoch .. ' ' .. number)
end

local jobs, freed, news, has_told = {}, {}, 0, false

local function push_all()
  if #jobs > 0 then push_into(P, ARGV[1], now_us(), jobs, WORDS - 2, 1, #jobs / (WORDS - 2)) end
  jobs = {}
end

local function remember(id, name)
  if redis.call('ZADD', P .. 'heard:' .. id, 'NX', 0, name) == 0 then return false end
  redis.call('HSET', P .. 'heard', id, '1')
  return true
end

local function forget_letter(id, name)
  if redis.call('ZREM', P .. 'heard:' .. id, name) == 0 then return false end
  if redis.call('EXISTS', P .. 'heard:' .. id) == 0 then redis.call('HDEL', P .. 'heard', id) end
  return true
end

for at = 5, #ARGV, WORDS do
  local name, kind, id = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_news
  if kind == 'push' then
    is_news = remember(id, name)
    for word = at + 2, is_news and at + WORDS - 1 or 0 do jobs[#jobs + 1] = ARGV[word] end
  elseif kind == 'forget' then
    is_news = forget_letter(id, name)
  elseif kind == 'ask' then
    push_all() -- what came before it is queued
    has_told = note_asked(P, id, ARGV[at + 3]) or has_told
  elseif kind == 'told' then
    local asked = redis.call('ZSCORE', P .. 'waits:' .. id, ARGV[at + 4])
    is_news = asked and tonumber(asked) == tonumber(ARGV[at + 3])
    if is_news and wait_no_more(P, id, ARGV[at + 4]) then freed[#freed + 1] = id end
  end
  if is_news then news = news + 1 end
end
push_all()
release_held(P, shard_now(P, last_score), freed)
if has_told then ring_post(P) end
redis.call('HSET', P .. 'relayed', ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
redis.call('EXPIRE', P .. 'relayed', KEPT)
return news
