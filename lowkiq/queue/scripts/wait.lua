-- wait: have an id that waits for a batch (waiting.lua) wait for more as well; or tell that this was all of the batch. Where
-- it does not wait for that batch any more, as somebody has had it run or deleted it, or this was told before, nothing is
-- changed; nor is anything by repeating it. What other batches with the same id at the end hold open stays.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 id, 3 the batch, 4 '1' if that was all, then what it waits for: "queue shards_count id"
-- returns 1, or 0 if it does not wait for that batch   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock
--@ moving whole
--@ waiting wait end
--@ holding release
local P, id, batch = KEYS[1], ARGV[2], ARGV[3]
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end
local is_dead = redis.call('ZSCORE', P .. 'morgue:waits:' .. id, batch)
local is_waiting = redis.call('ZSCORE', P .. 'waits:' .. id, batch)
if not is_dead and not is_waiting then return 0 end

local others = {}
for i = 5, #ARGV do others[#others + 1] = ARGV[i] end
if is_dead then -- it asks once it is revived
  for _, name in ipairs(others) do redis.call('ZADD', P .. 'morgue:waits:' .. id, next_number(P), name) end
  if ARGV[4] == '1' then redis.call('ZREM', P .. 'morgue:waits:' .. id, batch) end
end
if not is_waiting then return 1 end
if #others > 0 then wait_for(P, ARGV[1], id, others) end
if ARGV[4] == '1' and wait_no_more(P, id, batch) then release_held(P, shard_now(P, last_score), {id}) end
return 1
