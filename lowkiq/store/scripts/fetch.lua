-- fetch: jobs of the queue or of the morgue, as they are.
-- KEYS  1 shard prefix
-- ARGV  1 'queue' or 'morgue', 2 most payloads of a job to return, then ids
-- returns for each id nil, or {perform_in or updated_at, retry_count or '', error or '', number of payloads,
--         payload, score, payload, score ...}
local P = KEYS[1]
local in_morgue = ARGV[1] == 'morgue'
local index = P .. (in_morgue and 'morgue' or 'due')
local bag = P .. (in_morgue and 'morgue:payloads' or 'payloads')
local errors = P .. (in_morgue and 'morgue:errors' or 'errors')
local jobs = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local at = redis.call('ZSCORE', index, id)
  local held = redis.call('HGET', bag, id)
  jobs[i - 2] = false
  if at and held then
    local retry_count = not in_morgue and (redis.call('ZSCORE', P .. 'retries', id) or '-1') or ''
    local job = {at, retry_count, redis.call('HGET', errors, id) or '', 1}
    if held == '*' then
      job[4] = redis.call('ZCARD', bag .. ':' .. id)
      for _, value in ipairs(redis.call('ZRANGE', bag .. ':' .. id, 0, ARGV[2] - 1, 'WITHSCORES')) do
        job[#job + 1] = value
      end
    else
      local colon = string.find(held, ':', 1, true)
      job[5], job[6] = string.sub(held, colon + 1), string.sub(held, 1, colon - 1)
    end
    jobs[i - 2] = job
  end
end
return jobs
