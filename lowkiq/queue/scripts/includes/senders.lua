-- What is sent twice, or comes late, is applied once. A *sender* is whoever sends one call at a time, which it repeats when a reply
-- is lost; its calls have *numbers*, which rise, and all tries of a call have the same. A shard remembers for each sender
-- the number of the last call that it has applied, and what that gave: a repetition is told the same, and a first try that
-- comes after its repetition, or after a later call, changes nothing.
--
-- A number is also the time, by Redis's clock and in microseconds, up to which its call may be applied: the caller waits no
-- longer, and from then on may say that it has failed. So a shard need remember it for little longer than that.

--- heard
-- What a shard has said of a call: from what it knows of the sender, or false. nil: it has not had it. What is said of a call of
-- an older number, which has been given up, nobody hears.
local function heard(known, number)
  local last, reply = string.match(known or '', '^(%d+) ?(.*)$')
  if last == number then return reply end
  return last and tonumber(last) > tonumber(number) and 'OLD' or nil
end

--- late
--@ shard refuse
-- A refusal of what comes too late, or has been given up.
local function too_late(now)
  return refuse('LATE', string.format('%.0f', now))
end

--- forget
-- Makes room in a hash for a sender that is new there: of those whose calls can be applied no more, some go, sooner or
-- later all. Without them a hash has few fields.
local FEW, SOME, KEPT_US = 64, 24, 60 * 1000000

local function forget_senders(key, now)
  if redis.call('HLEN', key) < FEW then return end
  local found, gone = redis.call('HRANDFIELD', key, SOME, 'WITHVALUES'), {}
  for i = 1, #found, 2 do
    if string.sub(found[i], 1, 1) == '~' and now - string.match(found[i + 1], '^%d+') > KEPT_US then gone[#gone + 1] = found[i] end
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
end

--- once
--@ shard refuse now
--@ senders heard late forget
-- What people do to jobs is applied once, too: `deeds` has for each sender the number of its last call that was applied, and what that
-- gave, for longer than any of them may come late. Who was refused has changed nothing, and may come again. The stamp is behind
-- the arguments that a script has (call.py), and gone from there once it is read.
local DEEDS_KEPT = 600

-- A reply is a whole number, or a list of those and of texts.
local function written(reply)
  if type(reply) == 'number' then return string.format('%d', reply) end
  local words = {}
  for i, word in ipairs(reply) do
    words[i] = type(word) == 'number' and string.format('i%d ', word) or 's' .. #word .. ':' .. word
  end
  return '*' .. table.concat(words)
end

local function read_reply(text)
  if string.sub(text, 1, 1) ~= '*' then return tonumber(text) end
  local reply, at = {}, 2
  while at <= #text do
    local number, after = string.match(text, '^i(-?%d+) ()', at)
    local length, first = string.match(text, '^s(%d+):()', at)
    reply[#reply + 1] = number and tonumber(number) or string.sub(text, first, first + length - 1)
    at = after or first + length
  end
  return reply
end

local function once(P, deed)
  local number, sender = table.remove(ARGV), table.remove(ARGV)
  local key, now = P .. 'deeds', now_us()
  local known = redis.call('HGET', key, sender)
  local said = heard(known, number)
  if said == 'OLD' or not said and now > tonumber(number) then return too_late(now) end
  if said then return read_reply(said) end
  local reply = deed()
  if type(reply) == 'table' and reply.err then return reply end
  if not known then forget_senders(key, now) end
  redis.call('HSET', key, sender, number .. ' ' .. written(reply))
  redis.call('EXPIRE', key, DEEDS_KEPT)
  return reply
end
