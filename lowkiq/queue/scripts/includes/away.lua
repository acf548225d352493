-- A claim outlives its owner's hold of the shard: when that moves on, what runs stays in hand of who runs it, and is *away*.
-- The next owner has the shard but for these ids: what is queued of them waits behind their run, as behind any claim.
--
-- It is one of `asides`, by the name "epoch:number" of the lease under which it was made, and `away` has by that name a lease
-- of its own: until when, for how many seconds at a time, '1' once its node leaves it, the length of the node's name, that
-- name, and the suspect of it that runs alone, if one does. Its node alone renews and settles it. Whoever owns the shard
-- returns to the queue what such a lease has run out of.
--
-- When the shard is moved by a reshard, the claim goes along, by the ids in it, and is named "epoch:number@old index" there.

--- lease
local function parse_away(text)
  local ends, ttl, left, length, at = string.match(text or '', '^(%S+) (%S+) (%d) (%d+) ()')
  if not ends then return {ends = 0, ttl = '0', left = '0', node = '', alone = ''} end -- anybody may write to Redis
  return {
    ends = ends * 1000000, ttl = ttl, left = left, node = string.sub(text, at, at + length - 1),
    alone = string.sub(text, at + length),
  }
end

--- keep
--@ shard stamp
local function keep_away(P, name, lease)
  local words = {stamp(lease.ends), lease.ttl, lease.left, #lease.node, lease.node .. lease.alone}
  redis.call('HSET', P .. 'away', name, table.concat(words, ' '))
end

--- held
--@ shard refuse owner
--@ claimed find
--@ away lease
-- The claim with that number of a node's, be it away. Returns a refusal, or nil and the claim, nil if it is over. One that
-- moves is left alone until it has come with all that belongs to its ids.
local function held_claim(P, node, epoch, number)
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
  if owner[1] == node and owner[2] == epoch then return nil, find_claim(P, number, tonumber(owner[3]) or 0) end
  local moved_to = string.match(redis.call('HGET', P .. 'meta', 'layout') or '', '^(.*):moved$') -- moving.lua
  if moved_to then return refuse('RESHARDED', moved_to) end
  local from = string.match(number, '@(%d+)$')
  if from and redis.call('HEXISTS', P .. 'feeders', from) == 1 then return refuse('MOVING', string.match(P, '{(.*)}')) end
  local name = epoch .. ':' .. number
  local text = redis.call('HGET', P .. 'away', name)
  local lease = parse_away(text)
  if not text or lease.node ~= node then return fence(P, node, epoch) end
  return nil, {
    name = name, number = number, epoch = epoch, key = P .. 'aside:' .. name, lease = lease,
    last_due = redis.call('HGET', P .. 'asides', name),
  }
end

--- leave
--@ away keep
-- A claim of this owner is away from here on, until then. It is written where it goes before it goes there.
local function send_away(P, claim, node, epoch, ends, ttl)
  local name, owner = epoch .. ':' .. claim.number, redis.call('HMGET', P .. 'owner', 'alone', 'last_due')
  local number, alone = string.match(owner[1] or '', '^(%d+) (.*)$')
  keep_away(P, name, {ends = ends, ttl = ttl, left = '0', node = node, alone = number == claim.number and alone or ''})
  redis.call('HSET', P .. 'asides', name, claim.last_due or owner[2] or '0')
  redis.call('RENAME', claim.key, P .. 'aside:' .. name)
  if claim.key ~= P .. 'claim' then redis.call('HDEL', P .. 'asides', claim.number) end
end

--- restore
--@ away lease keep
--@ claimed in_hand
--@ endings restore
--@ deaths death
--@ notes note
-- Returns to the queue those of these claims that are away and whose lease has run out, or whose node is known to be dead
-- (`dead` has what it ran, by its name). Returns how many jobs were restored, and buried, and how many claims are away still.
local function restore_away(P, claims, clock, due_by, dead, max_crashes)
  local restored, buried, left = 0, 0, 0
  if redis.call('EXISTS', P .. 'feeders') == 1 then return 0, 0, #claims end -- they are on their way
  for _, claim in ipairs(claims) do
    local lease = claim.epoch and parse_away(redis.call('HGET', P .. 'away', claim.name))
    local ran = lease and dead[lease.node]
    -- Longer than its whole time it lasts only by a clock that was set back since.
    if lease and not ran and lease.ends > clock + lease.ttl * 1000000 then
      lease.ends = clock + lease.ttl * 1000000
      keep_away(P, claim.name, lease)
    end
    if lease and (ran or lease.ends <= clock) then
      if lease.alone ~= '' then claim.alone = claim.number .. ' ' .. lease.alone end
      if lease.left == '0' then note(P, ran and 'death' or 'lease_lost', '', lease.node) end
      local doomed, pauses = {}, {}
      if lease.left == '0' then doomed, pauses = count_death(P, claim, ran or '', max_crashes, due_by) end
      local returned, dead_now = restore_claim(P, due_by, claim, doomed, 'restored', pauses)
      restored, buried = restored + returned, buried + dead_now
    elseif lease then
      left = left + 1
    end
  end
  return restored, buried, left
end
