--! allow-oom
-- drop: delete jobs of the queue or of the morgue. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 'queue', 'failed' (of the queue, only jobs that have failed) or 'morgue', then ids
-- returns how many were deleted   errors: LAYOUT, NEWER
--@ shard layout
--@ claimed drop
local P = KEYS[1]
local refusal = check_layout(P, ARGV[1], true)
if refusal then return refusal end

local prefix = ARGV[2] == 'morgue' and P .. 'morgue:' or P
local dropped = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  local wanted = ARGV[2] ~= 'failed' or redis.call('ZSCORE', P .. 'retries', id)
  if wanted and redis.call('HEXISTS', prefix .. 'payloads', id) == 1 then
    if ARGV[2] == 'morgue' then
      redis.call('UNLINK', prefix .. 'payloads:' .. id)
      redis.call('HDEL', prefix .. 'payloads', id)
      redis.call('ZREM', P .. 'morgue', id)
      redis.call('HDEL', P .. 'morgue:errors', id)
    else
      drop_queued(P, id)
    end
    dropped = dropped + 1
  end
end
return dropped
