-- What happens to ids is noted for those who want to know: of the ids in `tracks` beside them, and of all ids by PUBLISH while
-- somebody listens, which `watch` tells until it expires. Mostly neither exists; the fast ways of push, claim, settle and
-- finish learn that from a command that they send anyway (push from meta's `watched`, which outlives them for a while).

--- note
--@ shard now stamp
local KEPT = 99 -- notes of an id, from its first on, and up to its last
local DETAIL = 200 -- bytes
local noting, watched, tracked = {}, {}, {} -- by shard

local function is_noting(P)
  if noting[P] == nil then
    local mark = redis.pcall('GET', P .. 'watch')
    watched[P] = type(mark) == 'string' and mark -- the database's part in the channel's name
    tracked[P] = redis.call('EXISTS', P .. 'tracks') == 1
    noting[P] = watched[P] ~= false or tracked[P]
  end
  return noting[P]
end

local function note(P, kind, id, node, detail)
  if not is_noting(P) then return end
  local text = kind .. ' ' .. stamp(now_us()) .. ' ' .. #node .. ' ' .. node .. string.sub(detail or '', 1, DETAIL)
  if watched[P] then
    local namespace, queue = string.match(P, '^(.-):{([^@]*)') -- whatever its generation
    queue = string.gsub(queue, ':%d+}:$', '')
    -- A user who may not publish loses no job by it.
    redis.pcall('PUBLISH', namespace .. ':bell:events' .. watched[P] .. ':' .. queue, #id .. ' ' .. id .. text)
  end
  if tracked[P] and redis.call('HEXISTS', P .. 'tracks', id) == 1 then
    local is_first = redis.call('HINCRBY', P .. 'tracks', id, 1) <= KEPT
    local key = P .. (is_first and 'tracked:' or 'tracked_last:') .. id
    redis.call('RPUSH', key, text)
    if not is_first then redis.call('LTRIM', key, -KEPT, -1) end
  end
end

--- all
--@ notes note
local function note_all(P, kind, ids, node)
  if not is_noting(P) then return end
  for _, id in ipairs(ids) do note(P, kind, id, node) end
end
