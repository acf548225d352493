-- `paused` exists while a shard is paused: since when, by Redis's clock, a space, and who paused it and why, as JSON.
-- Nothing is claimed then: claims, and whatever opens one, look for it among the rare keys that they ask for anyway; the
-- claim that was open is closed (push.lua), so pushes go into the queue.
--
-- What its owner had claimed and not started goes back: it is rung, and renewals tell it. Once it starts nothing more of
-- that, `rests` of `owner` has the epoch of its lease (rest.lua).

--- rests
-- Whether nothing that was claimed of a paused shard starts any more: its owner has said so, or has no lease.
local function is_at_rest(P, now)
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'until', 'rests')
  return not owner[1] or (tonumber(owner[3]) or 0) * 1000000 <= now or owner[4] == owner[2]
end
