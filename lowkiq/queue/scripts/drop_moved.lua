--! allow-oom
-- drop_moved: delete from an old shard what the new ones have adopted (moving.lua). Repeating it changes nothing.
-- KEYS  1 prefix of the old shard
-- ARGV  1 the mover, 2 epoch, 3 the step in which they have (note_step.lua), 4 what it is (pack.lua), then ids; of payloads: id, payload, id, payload ...; of what is in claims
--       that are away: id, name of the claim, id, name ...; of letters names
-- returns how many   errors: FENCED (also where they have lost it), INVALID (it is not marked)
--@ moving mover
--@ sides move
--@ claimed over read
--@ lanes drop
local P, what = KEYS[1], ARGV[4]
local refusal = fence_mover(P, ARGV[1], ARGV[2], ARGV[3])
if refusal then return refusal end
local CHUNK = 1000 -- arguments to one command
local dropped = 0

local function drop(command, key, ids)
  for first = 1, #ids, CHUNK do
    dropped = dropped + redis.call(command, key, unpack(ids, first, math.min(first + CHUNK - 1, #ids)))
  end
end

if what == 'away' then
  for i = 5, #ARGV, 2 do
    local id, name = ARGV[i], ARGV[i + 1]
    local claim = {name = name, key = P .. 'aside:' .. name, epoch = name}
    local ids, records = read_claim(claim)
    local left = {}
    for _, other in ipairs(ids) do
      if other ~= id then left[#left + 1], left[#left + 2] = other, records[other] end
    end
    if #left > 0 and #left < #ids * 2 then
      redis.call('RPUSH', claim.key, unpack(left))
      redis.call('LTRIM', claim.key, #ids * 2, -1)
    elseif #left == 0 then
      end_claim(P, claim)
    end
    redis.call('HDEL', P .. 'cancels', id)
    if records[id] then dropped = dropped + 1 end
  end
  return dropped
end

if string.sub(what, -8) == 'payloads' or string.sub(what, -5) == ':each' then
  local index = string.match(what, '^(.*):each$') or what
  local command = redis.call('TYPE', P .. index).ok == 'zset' and 'ZREM' or 'HDEL'
  for i = 5, #ARGV, 2 do
    local id, member = ARGV[i], ARGV[i + 1]
    if member == '' and index ~= what and index ~= 'claim' then -- the id itself, after all that was in its zset
      dropped = dropped + redis.call(command, P .. index, id)
    else
      dropped = dropped + redis.call('ZREM', P .. index .. ':' .. id, member)
    end
  end
  return dropped
end

local ids = {}
for i = 5, #ARGV do ids[#ids + 1] = ARGV[i] end
if what == 'due' or what == 'morgue' then
  drop('ZREM', P .. what, ids)
  dropped = 0
  drop('HDEL', P .. (what == 'due' and 'payloads' or 'morgue:payloads'), ids)
  return dropped
end
if what == 'outbox' then drop('HDEL', P .. 'letters', ids) end
if what == 'tenants' then
  for _, id in ipairs(ids) do drop_hint(P, id) end
end
for _, side in ipairs(SIDES) do
  if side[1] == what then drop(side[2] == 'zset' and 'ZREM' or 'HDEL', P .. what, ids) end
end
if what == 'tracks' then
  for _, id in ipairs(ids) do redis.call('UNLINK', P .. 'tracked:' .. id, P .. 'tracked_last:' .. id) end
end
return dropped
