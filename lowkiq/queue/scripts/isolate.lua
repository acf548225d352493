--! allow-oom
-- isolate: note that of a claim one suspect runs, with nothing else on its node, until it is settled; or that others run
-- beside it again. Whoever counts the death of its node then knows (deaths.lua). Repeating it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the claim, 4 id, 5 '1' if it runs alone from here on, '0' if not
-- returns 1, or 0 if the claim is over   errors: FENCED
--@ shard oom
--@ away held keep
local P = KEYS[1]
local refusal, claim = held_claim(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
if not claim then return 0 end

local mark = ARGV[3] .. ' ' .. ARGV[4]
free_first(P)
if claim.lease then
  local lease = claim.lease
  if ARGV[5] == '1' then lease.alone = ARGV[4] elseif lease.alone == ARGV[4] then lease.alone = '' end
  keep_away(P, claim.name, lease)
  return 1
end
if ARGV[5] == '1' then
  redis.call('HSET', P .. 'owner', 'alone', mark)
elseif redis.call('HGET', P .. 'owner', 'alone') == mark then
  redis.call('HDEL', P .. 'owner', 'alone')
end
return 1
