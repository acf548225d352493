-- lay_out: note a job as put_away would have kept it, for put_back to take it in. It changes nothing of the queue, and
-- forgets itself; repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 the name for put_back, 3 seconds for which it is kept, 4 id, 5 'queue' or 'morgue', 6 when it is due or
--       got into the morgue, 7 retry_count ('' = fresh), 8 error ('' = none), then score and payload of each payload
-- returns 1   errors: LAYOUT, NEWER
--@ shard layout
--@ kept keep
local P, id, kept = KEYS[1], ARGV[4], KEYS[1] .. 'undo:' .. ARGV[2]
local refusal = check_layout(P, ARGV[1], true)
if refusal then return refusal end
local is_single = #ARGV == 10 -- that is kept in the record itself, as it is in the queue
if not is_single then
  redis.call('ZADD', kept .. ':' .. id, unpack(ARGV, 9))
  redis.call('EXPIRE', kept .. ':' .. id, ARGV[3])
end
local retries, why = ARGV[7] ~= '' and ARGV[7], ARGV[8] ~= '' and ARGV[8]
keep_job(kept, id, {ARGV[5], ARGV[6], retries, why, is_single and ARGV[9] .. ':' .. ARGV[10] or '*'}, ARGV[3])
return 1
