--@ codes
-- I8: a caller with another shards_count changes nothing. Returns a refusal, or nil and whether the shard is new.
local function check_layout(P, layout)
  local known = redis.call('HGET', P .. 'meta', 'layout')
  if known and known ~= layout then
    return refuse('LAYOUT', 'the queue has shards_count ' .. known .. ', the caller says ' .. layout ..
      ': set shards_count = ' .. known .. ', or choose another queue_name and let the old queue run dry')
  end
  return nil, not known
end
