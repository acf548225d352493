-- Tags are of an id in a place: `tags` has those of queued ids, `claimed_tags` of claimed ones, `morgue:tags` of dead ones, as
-- one text with a line break between two tags. They go where the payloads of their id go, and are gone with them.
--
-- tagged:<tag> is the set of ids that have a tag in any place, and `tag_counts` how many those are. So many tags of a shard
-- are known there; a further one is kept beside its id, but it can't be searched for.
--
-- Behind its tags the text of an id may have contexts, of the spans in which it was pushed (telemetry/): each is a line
-- that begins with a byte 1, which no tag has. They go along, and nobody searches for them. The latest ones stay.

--- known
local has_tags = {} -- by shard

--- any
--@ tags known
local function is_any_tagged(P)
  if has_tags[P] == nil then
    has_tags[P] = redis.call('EXISTS', P .. 'tags', P .. 'claimed_tags', P .. 'morgue:tags') > 0
  end
  return has_tags[P]
end

--- each
local function each_tag(text)
  return string.gmatch(string.match(text or '', '^[^\1]*'), '[^\n]+')
end

--- add
--@ tags known each
local MOST_INDEXED = 1000
local MOST_TAGS = 20 -- of an id, as of a push
local MOST_CONTEXTS = 64 -- of an id: half of the links that a span has by default

-- The contexts of two texts, each once, behind these tags.
local function join_contexts(tags, before, text)
  local has, latest = {}, {}
  for _, some in ipairs({text, before}) do
    local own = {}
    for context in string.gmatch(some, '\1[^\n]+') do own[#own + 1] = context end
    for i = #own, 1, -1 do
      if not has[own[i]] and #latest < MOST_CONTEXTS then
        latest[#latest + 1], has[own[i]] = own[i], true
      end
    end
  end
  for i = #latest, 1, -1 do tags[#tags + 1] = latest[i] end
end

local function index_tags(P, id, text)
  for tag in each_tag(text) do
    local is_known = redis.call('ZSCORE', P .. 'tag_counts', tag) or redis.call('ZCARD', P .. 'tag_counts') < MOST_INDEXED
    if is_known and redis.call('SADD', P .. 'tagged:' .. tag, id) == 1 then
      redis.call('ZINCRBY', P .. 'tag_counts', 1, tag)
    end
  end
end

-- Puts tags to those that an id has in a place; the first ones stay.
local function add_tags(P, place, id, text)
  local before = redis.call('HGET', P .. place, id) or ''
  local merged, has = {}, {}
  for _, some in ipairs({before, text}) do
    for tag in each_tag(some) do
      if not has[tag] and #merged < MOST_TAGS then
        merged[#merged + 1], has[tag] = tag, true
      end
    end
  end
  if string.find(before .. text, '\1', 1, true) then join_contexts(merged, before, text) end
  local now = table.concat(merged, '\n')
  if now ~= before then redis.call('HSET', P .. place, id, now) end
  has_tags[P] = true
  index_tags(P, id, now)
end

--- drop
--@ tags any each
-- These are no longer known of an id that has them in no place.
local function unindex_tags(P, id, text)
  local has = {}
  for _, place in ipairs({'tags', 'claimed_tags', 'morgue:tags'}) do
    for tag in each_tag(redis.call('HGET', P .. place, id)) do has[tag] = true end
  end
  for tag in each_tag(text) do
    if not has[tag] and redis.call('SREM', P .. 'tagged:' .. tag, id) == 1
      and tonumber(redis.call('ZINCRBY', P .. 'tag_counts', -1, tag)) < 1 then
      redis.call('ZREM', P .. 'tag_counts', tag)
    end
  end
end

-- Ids are gone from a place.
local function drop_tags(P, place, ids)
  if not is_any_tagged(P) then return end
  for i, text in ipairs(redis.call('HMGET', P .. place, unpack(ids))) do
    if text then
      redis.call('HDEL', P .. place, ids[i])
      unindex_tags(P, ids[i], text)
    end
  end
end

--- copy
--@ tags any add
-- An id has come from one place into another, and may still be in the first.
local function copy_tags(P, from, to, id)
  local text = is_any_tagged(P) and redis.call('HGET', P .. from, id)
  if text then add_tags(P, to, id, text) end
end
