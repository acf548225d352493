-- Jobs that run after others (`after`), be those in any shard: until nothing is queued or runs of any of these ids, and none
-- is in the morgue. A job that waits is held (holding.lua), and `waits` has its id, with how many of those are done; `holds`
-- has it only if a person holds it as well, and either ends by itself. waits:<id> has for what it waits, "queue shards_count id"
-- or OPEN, each with the number of the question: whatever names it again asks anew, and an earlier answer counts no more.
--
-- The shard of such an id is asked by a letter (letters.lua): 'ask' has that id, and who waits: "queue shards_count number
-- count id", of which count is the shards_count that this one was asked by.
-- What has nothing of the id tells so at once, by a letter 'told' with the id that waits, the number, and what it waited for.
-- Else `waiters` has the id, and waiters:<id> who waits, by the number of the outbox when that was asked first, and once the id
-- is gone a letter "*id" in the outbox is turned into one to each who had asked before, some at a time.
--
-- Whoever waits asks again now and then (ask_again.lua), so it does no harm if something does not tell that an id is gone, such
-- as a Redis that has lost its last writes: `asks` has when. To be told twice changes nothing.
--
-- A job that is killed, or deleted, takes along what it waits for: `morgue:waits` and morgue:waits:<id> have it while it is dead,
-- the record of put_away and undo_waits:<name>:<id> while it can be undone. When it is back it asks anew.

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
local function ask_for(P, id, number, count, name)
  local queue, shards_count, other = string.match(name, '^([^:%s]+) (%d+) (.*)$')
  if not queue then return end -- OPEN, whatever the batch is called
  local who = queue_here(P) .. ' ' .. count .. ' ' .. number .. ' ' .. shards_count .. ' ' .. id
  write_letter(P, joined(id, 'ask', queue, shards_count, other, who))
end

--- open
local OPEN = ':open' -- no queue's name has a colon: more is to come of what it waits for

--- first
local ASKS_AFTER = 60 * 1000000 -- microseconds until who waits asks again, at first

--- begin
--@ shard now stamp
--@ waiting first

-- An id waits from now on, and is held.
local function begin_wait(P, id)
  if redis.call('HSETNX', P .. 'waits', id, '0') == 0 then return end
  redis.call('HDEL', P .. 'owner', 'open')
  redis.call('ZADD', P .. 'held', 'NX', stamp(now_us()), id)
  redis.call('ZADD', P .. 'asks', stamp(now_us() + ASKS_AFTER), id)
end

--- wait
--@ shard layout
--@ waiting begin ask
--@ letters number post

-- A queued id is to run after these: a list of "queue shards_count id". `others` may have OPEN among them.
local function wait_for(P, layout_here, id, others)
  local _, count = parse_layout(layout_here)
  begin_wait(P, id)
  for _, name in ipairs(others) do
    local number = next_number(P)
    redis.call('ZADD', P .. 'waits:' .. id, number, name)
    ask_for(P, id, number, count, name)
  end
  ring_post(P)
end

--- end
--@ waiting forget open
-- An id waits no more for that. Returns whether it may run: it waits for nothing, and nobody holds it.
local function wait_no_more(P, id, name)
  if redis.call('ZREM', P .. 'waits:' .. id, name) == 0 then return false end
  if string.sub(name, 1, #OPEN) ~= OPEN then redis.call('HINCRBY', P .. 'waits', id, 1) end
  return redis.call('EXISTS', P .. 'waits:' .. id) == 0 and forget_waits(P, id)
end

--- forget
-- An id is gone, waits for nothing more, or is to run without that. Returns whether it may run.
local function forget_waits(P, id)
  if redis.call('HDEL', P .. 'waits', id) == 0 then return false end
  redis.call('UNLINK', P .. 'waits:' .. id)
  redis.call('ZREM', P .. 'asks', id)
  return redis.call('HEXISTS', P .. 'holds', id) == 0 and redis.call('ZREM', P .. 'held', id) == 1
end

--- join
-- Puts what an id waits for in one place to what it waits for in another; of two questions the later one counts. The fewer go.
local PAGE = 500

local function join_waits(source, target)
  local fewer, more = source, target
  if redis.call('ZCARD', source) > redis.call('ZCARD', target) then fewer, more = target, source end
  while true do
    local page, words = redis.call('ZPOPMIN', fewer, PAGE), {}
    if #page == 0 then break end
    for i = 1, #page, 2 do words[i], words[i + 1] = page[i + 1], page[i] end
    redis.call('ZADD', more, 'GT', unpack(words))
  end
  if more ~= target then redis.call('RENAME', more, target) end
end

--- bury
--@ waiting join
-- A job that is killed takes along what it waits for.
local function bury_waits(P, id)
  local done = redis.call('HGET', P .. 'waits', id)
  if not done then return end
  redis.call('HINCRBY', P .. 'morgue:waits', id, done)
  join_waits(P .. 'waits:' .. id, P .. 'morgue:waits:' .. id)
end

--- again
--@ shard layout
--@ waiting begin ask join
--@ letters number post
local ASKED = 100 -- questions that are put at once, of all ids together; ask_again puts the others
local questions = 0

-- A queued id is back, and waits again for what is left of a set of names; so many were done.
local function wait_again(P, layout_here, id, done, source)
  if redis.call('EXISTS', source) == 0 then return end
  local _, count = parse_layout(layout_here)
  begin_wait(P, id)
  redis.call('PERSIST', source)
  join_waits(source, P .. 'waits:' .. id)
  redis.call('HINCRBY', P .. 'waits', id, done)
  redis.call('ZADD', P .. 'asks', '0', id)
  local names = redis.call('ZRANGE', P .. 'waits:' .. id, 0, ASKED - questions, 'WITHSCORES')
  if #names / 2 > ASKED - questions then return end
  for i = 1, #names, 2 do ask_for(P, id, names[i + 1], count, names[i]) end
  questions = questions + #names / 2
  redis.call('ZADD', P .. 'asks', stamp(now_us() + ASKS_AFTER), id)
  ring_post(P)
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
  redis.call('ZADD', P .. 'waiters:' .. id, 'NX', number, who) -- once more changes nothing
  redis.call('ZADD', P .. 'waiters', 'NX', number, id)
  return false
end

--- tell
--@ waiting joined queue
--@ letters write
-- Tells who waits that an id is gone.
local function tell_waiter(P, id, who)
  local queue, shards_count, number, count, waiting = string.match(who, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  if not queue then return end -- anybody may write to Redis
  write_letter(P, joined(id, 'told', queue, shards_count, waiting, number, queue_here(P) .. ' ' .. count .. ' ' .. id))
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
