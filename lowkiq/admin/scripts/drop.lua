--! allow-oom
--! once
-- drop: delete jobs of the queue or of the morgue. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 'queue', 'failed' (of the queue, only jobs that have failed) or 'morgue', then ids
-- returns how many were deleted   errors: LAYOUT, NEWER, RESHARDED, MOVING
--@ moving whole
--@ endings drop_from
local P = KEYS[1]
local refusal = check_whole(P, ARGV[1])
if refusal then return refusal end

local dropped = 0
for i = 3, #ARGV do
  if is_in(P, ARGV[2], ARGV[i]) then
    drop_from(P, ARGV[2], ARGV[i])
    dropped = dropped + 1
  end
end
return dropped
