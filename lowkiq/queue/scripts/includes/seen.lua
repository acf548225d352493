-- Keeps meta's `seen` (set_back.lua). A push has seen the time:
local function see(P, now, was_set_back, seen)
  if not was_set_back then
    redis.call('HDEL', P .. 'meta', 'seen')
  elseif now > seen then
    redis.call('HSET', P .. 'meta', 'seen', string.format('%.0f', now))
  end
end

-- Something else than a push has queued jobs for now.
local function note_time(P, now, last_score, seen)
  if now > last_score then redis.call('HSET', P .. 'meta', 'last_score', string.format('%.0f', now)) end
  if seen then see(P, now, now < last_score, tonumber(seen)) end
end
