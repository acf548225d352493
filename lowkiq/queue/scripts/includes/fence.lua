--@ codes
-- I1: only the node and epoch that own a shard change its claim. Returns a refusal, or nil and the last claim's number.
local function fence(P, node, epoch)
  local owner = redis.call('HMGET', P .. 'owner', 'node', 'epoch', 'claim')
  if owner[1] ~= node or owner[2] ~= epoch then
    return refuse('FENCED', 'owned by ' .. (owner[1] or 'nobody') .. ' at epoch ' .. (owner[2] or '0'))
  end
  return nil, tonumber(owner[3]) or 0
end
