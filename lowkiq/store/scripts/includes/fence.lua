--@ codes
-- I1: only the node and epoch that own a shard change its claim. Returns a refusal, or nil,
-- the last claim's number, and `waiting` (doorbell.lua).
local function fence(P, node, epoch)
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim', 'waiting')
  if owner[1] ~= node or owner[2] ~= epoch then
    return refuse('FENCED', 'owned by ' .. (owner[1] or 'nobody') .. ' at epoch ' .. (owner[2] or '0'))
  end
  return nil, tonumber(owner[3]) or 0, owner[4]
end
