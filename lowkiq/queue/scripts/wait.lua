-- wait: have an id that waits (waiting.lua) wait for more as well; or tell that this was all. Of one that waits no more, as
-- somebody has had it run or deleted it, nothing is changed; nor is anything by repeating it.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 id, 3 '1' if that was all, then what it waits for: "queue shards_count id"
-- returns 1, or 0 if it waits no more   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ shard clock
--@ moving whole
--@ waiting wait end
--@ holding release
local P, id = KEYS[1], ARGV[2]
local refusal, _, last_score = check_whole(P, ARGV[1])
if refusal then return refusal end
local is_dead = redis.call('HEXISTS', P .. 'morgue:waits', id) == 1
if not is_dead and redis.call('HEXISTS', P .. 'waits', id) == 0 then return 0 end

local others = {}
for i = 4, #ARGV do others[#others + 1] = ARGV[i] end
if is_dead then -- it asks once it is revived
  for _, name in ipairs(others) do redis.call('ZADD', P .. 'morgue:waits:' .. id, next_number(P), name) end
  if ARGV[3] == '1' then redis.call('ZREM', P .. 'morgue:waits:' .. id, OPEN) end
end
if redis.call('HEXISTS', P .. 'waits', id) == 0 then return 1 end
if #others > 0 then wait_for(P, ARGV[1], id, others) end
if ARGV[3] == '1' and wait_no_more(P, id, OPEN) then release_held(P, shard_now(P, last_score), {id}) end
return 1
