--! allow-oom
-- places: give back places of a queue with max_running, and take others. A place lets one batch run. Who finds none free
-- gets in line, and is rung when it is its turn. A place that is not kept (keep_places.lua) is free again after its time.
-- Repeating it changes nothing. (A late repeat may take a place that nobody uses: it is free again after its time, too.)
--
--   taken    zset: node, a space and a number → until when it has that place, by Redis's clock
--   waiting  zset: node in line → since when; each gets a place when its turn comes, and is the last then
--   asked    zset: the same → when it has asked last; who is silent is none that could start something just now
--   rung     zset: node whose turn it is → until when it goes before all others; if it does not come, they go on
--   max      the last max_running, for people to see
--
-- KEYS  1 prefix of the queue's places (on its own slot of a cluster)
-- ARGV  1 node, 2 max_running, 3 seconds for which a place is taken, 4 places given back: how many, 5 nodes known to be
--       dead: how many, then those places, those nodes, and the names of the wanted places
-- returns those of the wanted that it has now
--@ shard now stamp
--@ bell ring_node

local SILENT = 3000000 -- microseconds after which a node that asks no more has left the line; it asks twice a second
local FIRST = 50000 -- for which a place is kept for a node that was rung
local FORGET, KNOWN = 60, 86400 -- seconds after which all of this is forgotten

local P, node, most, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local given, dead = tonumber(ARGV[4]), tonumber(ARGV[5])
local now = now_us()

local function leave_line(name)
  redis.call('ZREM', P .. 'waiting', name)
  redis.call('ZREM', P .. 'asked', name)
  return redis.call('ZREM', P .. 'rung', name) == 1
end

-- Frees what is given back, what its time is over for, and what the dead have had. (It comes first, since it frees.)
local function free()
  redis.call('ZREMRANGEBYSCORE', P .. 'taken', '-inf', stamp(now))
  if given > 0 then redis.call('ZREM', P .. 'taken', unpack(ARGV, 6, 5 + given)) end
  redis.call('ZREMRANGEBYSCORE', P .. 'rung', '-inf', stamp(now))
  redis.call('ZREMRANGEBYSCORE', P .. 'rung', stamp(now + FIRST + 1), '+inf') -- of before the clock was set back
  for _, silent in ipairs(redis.call('ZRANGEBYSCORE', P .. 'asked', '-inf', stamp(now - SILENT))) do
    redis.call('ZREM', P .. 'waiting', silent)
    redis.call('ZREM', P .. 'asked', silent)
  end
  if dead == 0 then return end
  local is_dead = {}
  for i = 6 + given, 5 + given + dead do
    is_dead[ARGV[i]] = true
    leave_line(ARGV[i])
  end
  for _, place in ipairs(redis.call('ZRANGE', P .. 'taken', 0, -1)) do
    if is_dead[string.match(place, '^(.*) ')] then redis.call('ZREM', P .. 'taken', place) end
  end
end

local function count_free()
  return most - redis.call('ZCARD', P .. 'taken')
end

-- How many of these it may take: none while all that is free is for those before it; not what is for those behind it,
-- but one in any case.
local function count_turns(missing)
  local rank = redis.call('ZRANK', P .. 'waiting', node)
  local was_rung = redis.call('ZREM', P .. 'rung', node) == 1
  local rung, waiting = redis.call('ZCARD', P .. 'rung'), redis.call('ZCARD', P .. 'waiting')
  local ahead = was_rung and 0 or rung + (rank or waiting)
  local is_free = count_free()
  if is_free <= ahead then return 0 end
  return math.min(missing, math.max(1, is_free - rung - waiting + (rank and 1 or 0)))
end

local function take()
  local has, missing = {}, {}
  for i = 6 + given + dead, #ARGV do
    local list = redis.call('ZSCORE', P .. 'taken', ARGV[i]) and has or missing
    list[#list + 1] = ARGV[i]
  end
  if #missing == 0 then return has end
  local turns = count_turns(#missing)
  for i = 1, turns do
    redis.call('ZADD', P .. 'taken', stamp(now + ttl * 1000000), missing[i])
    has[#has + 1] = missing[i]
  end
  if turns > 0 then leave_line(node) end
  if turns < #missing then
    redis.call('ZADD', P .. 'waiting', 'NX', stamp(now), node)
    redis.call('ZADD', P .. 'asked', stamp(now), node)
  end
  return has
end

-- Rings those whose turn it is; and the next one for when one of them has not come.
local function ring_next()
  local turns = count_free() - redis.call('ZCARD', P .. 'rung')
  if turns <= 0 then return end
  for i, name in ipairs(redis.call('ZRANGE', P .. 'waiting', 0, turns)) do
    if i <= turns then
      redis.call('ZREM', P .. 'waiting', name)
      redis.call('ZADD', P .. 'rung', stamp(now + FIRST), name)
    end
    ring_node(P, name, 'place ' .. P .. ' ' .. (i <= turns and '0' or FIRST / 1000000))
  end
end

free()
local has = take()
ring_next()
for _, key in ipairs({'waiting', 'asked', 'rung'}) do redis.call('EXPIRE', P .. key, FORGET) end
redis.call('EXPIRE', P .. 'taken', KNOWN) -- longer than any node has its places for
redis.call('SET', P .. 'max', ARGV[2], 'EX', KNOWN)
return has
