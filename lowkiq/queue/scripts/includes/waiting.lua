-- Jobs that run after others (`after`), be those in any shard: until nothing is queued or runs of any of these ids, and none
-- is in the morgue. A job that waits is held (holding.lua), and `waits` has its id, with a token of this wait and how many it
-- has waited for in all; waits:<id> has for what, "queue shards_count id" or OPEN, by when that was asked for last. `holds` has it only if a
-- person holds it as well.
--
-- The shard of such an id is asked by a letter (letters.lua): 'ask' has that id, and who waits: "queue shards_count token
-- count id", of which count is the shards_count that this one was asked by.
-- What has nothing of the id tells so at once, by a letter 'told' with the id that waits, the token, and what it waited for.
-- Else `waiters` has the id, and waiters:<id> who waits, by the number of the outbox when that was asked, and once the id is
-- gone a letter "*id" in the outbox is turned into one to each who had asked before, some at a time.
--
-- Whoever waits asks again now and then (ask_again.lua), so it does no harm if something does not tell that an id is gone: an
-- older Lowkiq, or a Redis that has lost its last writes. To be told twice changes nothing, nor does it with an earlier token.

--- joined
-- Words, each behind its length and a colon.
local function joined(...)
  local words = {...}
  for i, word in ipairs(words) do words[i] = #word .. ':' .. word end
  return table.concat(words)
end

--- parted
-- Such words again.
local function parted(text)
  local words, at = {}, 1
  while at <= #text do
    local length, first = string.match(text, '^(%d+):()', at)
    if not length then return {} end
    at = first + length
    words[#words + 1] = string.sub(text, first, at - 1)
  end
  return words
end

--- queue
-- The queue and the number of shards that those of its layout have.
local function queue_here(P)
  return string.match(P, '{([^@:]*)')
end

--- ask
--@ waiting joined queue
--@ letters write
local function ask_for(P, id, token, count, name)
  local queue, shards_count, other = string.match(name, '^(%S+) (%d+) (.*)$')
  write_letter(P, joined(id, 'ask', queue, shards_count, other, queue_here(P) .. ' ' .. count .. ' ' .. token .. ' ' .. shards_count .. ' ' .. id))
end

--- open
local OPEN = ':open' -- no queue's name has a colon: more is to come of what it waits for

--- wait
--@ shard now stamp layout
--@ waiting ask open
--@ letters post

-- A queued id is to run after these: a list of "queue shards_count id". `others` may have OPEN among them.
local function wait_for(P, layout_here, id, others)
  local token, known = string.match(redis.call('HGET', P .. 'waits', id) or '', '^(%d+) (%d+)$')
  if not token then
    token, known = string.format('%.0f', now_us()), 0
    redis.call('ZADD', P .. 'held', 'NX', stamp(now_us()), id)
    redis.call('HDEL', P .. 'owner', 'open')
  end
  local _, count = parse_layout(layout_here)
  local at, new = string.format('%.0f', now_us()), 0
  for _, name in ipairs(others) do
    if redis.call('ZADD', P .. 'waits:' .. id, 'NX', at, name) == 1 and name ~= OPEN then
      ask_for(P, id, token, count, name)
      new = new + 1
    end
  end
  redis.call('HSET', P .. 'waits', id, token .. ' ' .. string.format('%d', known + new))
  ring_post(P)
end

--- end
-- An id waits no more for that. Returns whether it may run: it waits for nothing, and nobody holds it.
local function wait_no_more(P, id, name)
  if redis.call('ZREM', P .. 'waits:' .. id, name) == 0 or redis.call('EXISTS', P .. 'waits:' .. id) == 1 then return false end
  redis.call('HDEL', P .. 'waits', id)
  return redis.call('HEXISTS', P .. 'holds', id) == 0 and redis.call('ZREM', P .. 'held', id) == 1
end

--- forget
-- An id is gone, or somebody has let it go: it waits for nothing.
local function forget_waits(P, id)
  if redis.call('HDEL', P .. 'waits', id) == 0 then return end
  redis.call('UNLINK', P .. 'waits:' .. id)
  if redis.call('HEXISTS', P .. 'holds', id) == 0 then redis.call('ZREM', P .. 'held', id) end
end

--- here
--@ claimed claim_of
-- Whether something of an id is queued, runs, or is in the morgue.
local function is_here(P, id)
  return redis.call('HEXISTS', P .. 'payloads', id) == 1 or redis.call('HEXISTS', P .. 'morgue:payloads', id) == 1
    or claim_of(P, id) ~= nil
end

--- gone
--@ waiting here
--@ letters write post
-- Nothing may be left of these ids: has those who wait for them be told.
local function tell_if_gone(P, ids)
  if redis.call('EXISTS', P .. 'waiters') == 0 then return end
  local is_told = false
  for _, id in ipairs(ids) do
    if redis.call('ZSCORE', P .. 'waiters', id) and not is_here(P, id) then
      write_letter(P, '*' .. id)
      is_told = true
    end
  end
  if is_told then ring_post(P) end
end

--- asked
--@ waiting here tell
--@ letters write
-- Somebody asks to be told once an id is gone. Returns whether it is, and a letter tells so.
local function note_asked(P, id, who)
  if not is_here(P, id) then
    tell_waiter(P, id, who)
    return true
  end
  local number = redis.call('HGET', P .. 'meta', 'posted') or '0'
  redis.call('ZADD', P .. 'waiters:' .. id, number, who)
  redis.call('ZADD', P .. 'waiters', 'NX', number, id)
  return false
end

--- tell
--@ waiting joined queue
--@ letters write
-- Tells who waits that an id is gone.
local function tell_waiter(P, id, who)
  local queue, shards_count, token, count, waiting = string.match(who, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  if not queue then return end -- anybody may write to Redis
  write_letter(P, joined(id, 'told', queue, shards_count, waiting, token, queue_here(P) .. ' ' .. count .. ' ' .. id))
end

--- tell_all
--@ waiting tell
-- Turns a letter "*id" into one to each who had asked before, at most so many of them. Returns how many; the letter is gone
-- after the last.
local function tell_all(P, name, number, id, most)
  local waiters = P .. 'waiters:' .. id
  local found = redis.call('ZRANGEBYSCORE', waiters, '-inf', '(' .. number, 'LIMIT', 0, most)
  for _, who in ipairs(found) do tell_waiter(P, id, who) end
  if #found > 0 then redis.call('ZREM', waiters, unpack(found)) end
  if #found < most then
    redis.call('ZREM', P .. 'outbox', name)
    redis.call('HDEL', P .. 'letters', name)
    if redis.call('EXISTS', waiters) == 0 then redis.call('ZREM', P .. 'waiters', id) end
  end
  return #found
end
