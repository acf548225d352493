--! once
-- track: keep what happens to ids from now on, or no longer; then what was kept goes, too. Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, 2 '1' to track, '0' to track no more, 3 how many ids of a shard may be tracked, then ids
-- returns how many it was new to   errors: LAYOUT, NEWER, RESHARDED, MOVING, INVALID (too many)
--@ moving whole
local P = KEYS[1]
local refusal = check_whole(P, ARGV[1])
if refusal then return refusal end

local changed = 0
if ARGV[2] == '0' then
  for i = 4, #ARGV do
    changed = changed + redis.call('HDEL', P .. 'tracks', ARGV[i])
    redis.call('UNLINK', P .. 'tracked:' .. ARGV[i], P .. 'tracked_last:' .. ARGV[i])
  end
  return changed
end
local new = {}
for i = 4, #ARGV do
  if redis.call('HEXISTS', P .. 'tracks', ARGV[i]) == 0 then new[#new + 1] = ARGV[i] end
end
if redis.call('HLEN', P .. 'tracks') + #new > tonumber(ARGV[3]) then
  return refuse('INVALID', ARGV[3] .. ' ids of a queue can be tracked at most: untrack some first')
end
if #new > 0 then redis.call('HSET', P .. 'meta', 'watched', '1') end
for _, id in ipairs(new) do redis.call('HSET', P .. 'tracks', id, '0') end
return #new
