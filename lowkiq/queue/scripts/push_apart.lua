-- push_apart: put jobs of several pushes, each of one job, into shards that nobody has to be woken for, and answer each
-- push for itself. What is not as plain as most are is left for push, with nothing changed, and so is all that follows it
-- in its shard: a job that is queued already or is parked, a shard that is watched or has tracked ids (notes.lua), an owner who waits, a clock that was set back, a shard that is
-- new, of another layout or can't be written to.
-- KEYS  shard prefixes, e.g. lowkiq:{orders:7}:
-- ARGV  1 layout (shards_count), and then for each shard the number of its jobs, and for each of those: id, payload.
--       Scores and times are the default
-- returns for each job, in this order, 1 if it is new in the queue, 0 if it is left   errors: none of ours
--@ payloads compact
--@ shard now stamp set_back
local now, at = now_us(), 2
local taken = {}

local function push(P, first, count)
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'watched')
  local last_score, pushed = tonumber(meta[2] or 0), (meta[4] or 0) + 0
  if meta[1] ~= ARGV[1] or meta[3] or meta[5] or last_score - now >= SET_BACK then return end
  if redis.call('HGET', P .. 'owner', 'waiting') then return end
  local score = math.max(now, last_score + 1)
  local due, payloads, done = P .. 'due', P .. 'payloads', 0
  for word = first, first + 2 * count - 2, 2 do
    if redis.call('ZADD', due, 'NX', stamp(score), ARGV[word]) == 0 then break end
    redis.call('HSET', payloads, ARGV[word], compact(score, ARGV[word + 1]))
    taken[#taken + 1], score, done = 1, score + 1, done + 1
  end
  if done > 0 then
    local scored, counted = string.format('%d', score - 1), string.format('%d', pushed + done)
    redis.call('HSET', P .. 'meta', 'last_score', scored, 'pushed', counted)
  end
end

for i = 1, #KEYS do
  local count, before = tonumber(ARGV[at]), #taken
  pcall(push, KEYS[i], at + 1, count) -- an error is push's to tell: it comes upon the same
  for number = #taken + 1, before + count do taken[number] = 0 end
  at = at + 1 + 2 * count
end
return taken
