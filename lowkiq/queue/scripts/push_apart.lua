-- push_apart: put jobs of several pushes, each of one job, into shards that nobody has to be woken for, and answer each
-- push for itself. What is not as plain as most are is left for push, with nothing changed, and so is all that follows it
-- in its shard: a job that is queued already or is parked, a shard that is watched or has tracked ids (notes.lua), an owner who waits, a clock that was set back, a shard that is
-- new, of another layout or can't be written to.
-- KEYS  shard prefixes, e.g. lowkiq:{orders:7}:
-- ARGV  1 layout (shards_count), 2 sender, 3 number (senders.lua), and then for each shard the number of its jobs, and for each
--       of those: id, payload. Scores and times are the default
-- returns for each job, in this order, 1 if it is new in the queue, 0 if it is left   errors: none of ours
-- Repeating it changes nothing, nor does a try that comes late: what is left by one is left by all.
--@ payloads compact
--@ shard now stamp set_back
--@ senders heard forget
local sender, number, now, at = ARGV[2], ARGV[3], now_us(), 4
local taken = {}

-- Puts what is plain into a shard whose meta says so; returns how many that were, and what is new in its meta.
local function push_plain(P, meta, first, count)
  local last_score, pushed = tonumber(meta[2] or 0), (meta[4] or 0) + 0
  if meta[1] ~= ARGV[1] or meta[3] or meta[5] or last_score - now >= SET_BACK then return 0 end
  if redis.call('HGET', P .. 'owner', 'waiting') then return 0 end
  local score = math.max(now, last_score + 1)
  local due, payloads, done = P .. 'due', P .. 'payloads', 0
  for word = first, first + 2 * count - 2, 2 do
    if redis.call('ZADD', due, 'NX', stamp(score), ARGV[word]) == 0 then break end
    redis.call('HSET', payloads, ARGV[word], compact(score, ARGV[word + 1]))
    taken[#taken + 1], score, done = 1, score + 1, done + 1
  end
  if done == 0 then return 0 end
  return done, 'last_score', string.format('%d', score - 1), 'pushed', string.format('%d', pushed + done)
end

local function push(P, first, count)
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'watched', sender)
  local said = heard(meta[6], number)
  if said then
    for _ = 1, said == '' and count or tonumber(said) or 0 do taken[#taken + 1] = 1 end
  elseif now <= tonumber(number) and string.sub(meta[1] or '', -6) ~= ':moved' then
    if not meta[6] then forget_senders(P .. 'meta', now) end
    local new = {push_plain(P, meta, first, count)}
    redis.call('HSET', P .. 'meta', sender, new[1] < count and number .. ' ' .. new[1] or number, unpack(new, 2))
  end
end

for i = 1, #KEYS do
  local count, before = tonumber(ARGV[at]), #taken
  pcall(push, KEYS[i], at + 1, count) -- an error is push's to tell: it comes upon the same
  for number = #taken + 1, before + count do taken[number] = 0 end
  at = at + 1 + 2 * count
end
return taken
