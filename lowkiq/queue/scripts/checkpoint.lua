--! once
-- checkpoint: keep what a running job wants to be given back when its payload is run again. It takes the place of what
-- was kept before.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of the claim, 4 id, 5 value
-- returns 1, or 0 if the claim is over, or the id no longer in it   errors: FENCED
--@ away held
--@ claimed read parse
local P = KEYS[1]
local refusal, claim = held_claim(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
if not claim then return 0 end
local _, records = read_claim(claim)
local record = records[ARGV[4]]
if not record then return 0 end

local _, _, held = parse_claimed(P, claim, record)
local payload
if held == '*' then
  payload = redis.call('ZRANGE', P .. 'claim:' .. ARGV[4], 0, 0)[1]
else
  _, payload = split(held)
end
-- A long payload is known by its ends and its length: each checkpoint has a copy of what names it. (fakeredis has no SHA-1.)
local name = payload
if #payload > 1000 then name = #payload .. ':' .. string.sub(payload, 1, 500) .. string.sub(payload, -500) end
redis.call('HSET', P .. 'checkpoints', ARGV[4], #name .. ':' .. name .. ARGV[5])
return 1
