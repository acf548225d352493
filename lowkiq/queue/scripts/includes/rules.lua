-- `rules` has what ids that run less often, or keep one payload, are to (fewer.lua): which payload is kept of them, and which of
-- equal ones counts. Whoever merges payloads asks.

--- ruled
local ruled = {} -- by shard

--- known
--@ rules ruled
local function is_any_ruled(P)
  if ruled[P] == nil then ruled[P] = redis.call('EXISTS', P .. 'rules', P .. 'debounced') > 0 end
  return ruled[P]
end

--- parse
local parsed = {} -- mostly all jobs of a push have the same word

local function parse_fewer(word)
  if not parsed[word] then
    local wait, at_most, throttle, keep = string.match(word, '^(.-):(.-):(.-):(.*)$')
    parsed[word] = {wait = tonumber(wait), at_most = tonumber(at_most), throttle = throttle, keep = keep,
      keeps_one = keep == 'last' or keep == 'first'}
  end
  return parsed[word]
end

--- rule
--@ rules ruled
local function set_rule(P, id, fewer)
  local throttle, keep = fewer.throttle, fewer.keep
  if throttle == '' and keep == '' then return end
  local known = redis.call('HGET', P .. 'rules', id) or ':'
  local before, kept = string.match(known, '^(.-):(.*)$')
  if throttle == '' then throttle = before or '' end
  if keep == '' then keep = kept or '' end
  local rule = (throttle == '0' and '' or throttle) .. ':' .. (keep == 'all' and '' or keep)
  if rule == known then return end
  if rule == ':' then
    redis.call('HDEL', P .. 'rules', id)
  else
    redis.call('HSET', P .. 'rules', id, rule)
  end
  ruled[P] = nil
end

--- put
--@ rules ruled
-- What an id had for a rule before it was deleted, unless it has one by now.
local function put_rule(P, id, rule)
  if not (rule and string.match(rule, '^[%d.]*:%l*$')) or redis.call('HEXISTS', P .. 'rules', id) == 1 then return end
  redis.call('HSET', P .. 'rules', id, rule)
  ruled[P] = nil
end

--- forget
--@ rules known
-- Nothing runs any more of these ids: forgets the rules of those of which nothing is queued either.
local function forget_rules(P, ids)
  if not is_any_ruled(P) then return end
  local gone = {}
  for i, held in ipairs(redis.call('HMGET', P .. 'payloads', unpack(ids))) do
    if not held then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then redis.call('HDEL', P .. 'rules', unpack(gone)) end
end

--- keep_of
--@ rules known
-- Which one payload is kept of an id, 'last' or 'first'; nil: all are.
local function keep_of(P, id)
  local keep = is_any_ruled(P) and string.match(redis.call('HGET', P .. 'rules', id) or '', ':(.+)$')
  return (keep == 'last' or keep == 'first') and keep or nil
end

--- equal
--@ rules known
-- Which score equal payloads of an id have, of those in that key (payloads.lua): 'GT', the highest, or by its rule 'LT'. In
-- the morgue it is the highest: there ids have no rules.
local function which_of_equal(key, id)
  local P = string.match(key, '^(.-}:)payloads$')
  if not P then return 'GT' end
  local is_lowest = is_any_ruled(P) and string.match(redis.call('HGET', P .. 'rules', id) or '', ':lowest$')
  return is_lowest and 'LT' or 'GT'
end
