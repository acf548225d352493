--@ bell
--@ fresh
-- Most pushes are of one job with the default score and due time, now, while Redis's clock runs on. They are done here:
-- into the owner's open claim or, where it doesn't wait and nothing is queued for the id, into the queue. All others are
-- left to what follows, with nothing changed. Few functions are made before this, as Lua makes each anew whenever it comes
-- by, and what Redis gave as text is not printed again.
--
-- A claim that found nothing stays open: `open` is its epoch and number, until another one is made or the lease ends. A
-- push may put its job right into it, in the owner's name (I1), and rings with all that the owner needs to know of it:
-- the job is on its way after half the commands, and without the thread's having to ask. Only while that thread listens,
-- and to a lease that lasts: else the job belongs in the queue, where it merges and others find it.
local HANDED = 16384 -- bytes of a payload; a longer one would cost more by being copied than it saves

if #ARGV == 4 and ARGV[2] == '2' then
  local P, id, payload = KEYS[1], ARGV[3], ARGV[4]
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed')
  local time = redis.call('TIME')
  local now, micros = time[1] * 1000000 + time[2], string.sub('00000' .. time[2], -6)
  local at = time[1] .. '.' .. micros

  local is_pushed = false
  if meta[1] == ARGV[1] and not meta[3] and tonumber(meta[2] or 0) < now then
    local owner = redis.call('HMGET', P .. 'owner', 'waiting', 'bell', 'open', 'until')
    local waiting, bell, open = owner[1], owner[2], owner[3]
    if not waiting then
      is_pushed = redis.call('ZADD', P .. 'due', 'NX', at, id) == 1
      if is_pushed then redis.call('HSET', P .. 'payloads', id, fresh(now, payload)) end
    elseif bell and open and now < (owner[4] or 0) * 1000000 and #payload <= HANDED then
      -- An owner that waits for nothing has an empty queue.
      local may_go = waiting == 'inf' or now < waiting * 1000000 and not redis.call('ZSCORE', P .. 'due', id)
      is_pushed = may_go and redis.call('EXISTS', bell .. ':idle') == 1
      if is_pushed then
        -- The first write is one that Redis refuses when memory is full: a push that fails has taken nothing away.
        redis.call('RPUSH', P .. 'claim', id, at .. ':-1:' .. at .. ':' .. payload)
        redis.call('HDEL', P .. 'owner', 'waiting', 'open')
        take_idle(bell)
        tell(bell, P .. ' 0 1 ' .. open .. ' ' .. at .. ' ' .. #id .. ' ' .. id .. payload)
      end
    end
  end
  if is_pushed then
    redis.call('HSET', P .. 'meta', 'last_score', time[1] .. micros, 'pushed', (meta[4] or 0) + 1)
    return {1, 0}
  end
end
