--@ codes
local function layout_version(layout)
  return tonumber(string.match(layout, '^(%d+):') or 1)
end

-- I8: a caller with another shards_count, or an older layout, changes nothing. Returns a refusal, or nil, whether the
-- shard is new, and of its meta the last score that a push was given, `seen` (set_back.lua), pushed and merged. A layout is
-- the shards_count, and from version 2 on has the version and a colon in front.
local function check_layout(P, layout)
  local meta = redis.call('HMGET', P .. 'meta', 'layout', 'last_score', 'seen', 'pushed', 'merged')
  local known = meta[1]
  if known and known ~= layout then
    if layout_version(known) > layout_version(layout) then
      return refuse('NEWER', string.match(P, '{(.*):%d+}') .. ' ' .. layout_version(known))
    end
    return refuse('LAYOUT', 'the queue has shards_count ' .. known .. ', the caller says ' .. layout ..
      ': set shards_count = ' .. known .. ', or choose another queue_name and let the old queue run dry')
  end
  return nil, not known, meta[2] or '0', meta[3], meta[4] or 0, meta[5] or 0
end
