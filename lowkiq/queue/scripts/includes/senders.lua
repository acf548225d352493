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
