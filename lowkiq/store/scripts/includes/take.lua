--@ clock
--@ fence
--@ layout
--@ bag
--@ many
--@ set_back
--@ doorbell
--@ room
-- What is read at a time: little, so that a thousand large payloads are not read before the limit of bytes is noticed.
local FIRST_STEP, LAST_STEP = 4, 32

-- Takes due jobs, oldest first, out of the queue and into the shard's one claim (I4). `number` is that of this claim,
-- `limit` the most jobs, `max_payloads` the most of a job, `max_in_all` of all (its last job may exceed it), `max_bytes`
-- likewise (its last payload may exceed it).
-- Returns {now, next due or '', then for each job: id, "perform_in:retry_count:score:payload" (no score: it is
-- perform_in) or {"perform_in:retry_count", payload, score, payload, score ...}}, or a refusal: FENCED, LAYOUT, NEWER,
-- STALE (this number, or a later one, was claimed or given up), UNSETTLED (the last claim is).
local function take(P, node, epoch, number, layout, limit, max_payloads, max_in_all, max_bytes)
  local refusal, last_claim = fence(P, node, epoch)
  if refusal then return refusal end
  local layout_refusal, _, last_score, seen = check_layout(P, layout)
  if layout_refusal then return layout_refusal end
  if tonumber(number) <= last_claim then return refuse('STALE', 'claim ' .. last_claim .. ' came later') end
  if redis.call('EXISTS', P .. 'claim') == 1 then return refuse('UNSETTLED', 'claim ' .. last_claim) end

  local now = shard_now(P, last_score)
  max_payloads, max_in_all, max_bytes = tonumber(max_payloads), tonumber(max_in_all), tonumber(max_bytes)
  begin_with_room(P)
  follow_clock_back(P, now, tonumber(last_score), seen)
  local found = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', stamp(now), 'WITHSCORES', 'LIMIT', 0, limit)
  redis.call('HSET', P .. 'owner', 'claim', number)

  local ids = {}
  for i = 1, #found, 2 do ids[(i + 1) / 2] = found[i] end

  -- An id whose node has died is claimed alone, so that the innocent ones around it are not counted again.
  local function without_crashed(count)
    if count == 0 or redis.call('EXISTS', P .. 'crashes') == 0 then return count end
    local crashes = redis.call('HMGET', P .. 'crashes', unpack(ids))
    if crashes[1] then return 1 end
    for i = 2, count do
      if crashes[i] then return i - 1 end
    end
    return count
  end

  local count = without_crashed(#ids)
  local reply, claim, leftovers = {stamp(now), ''}, {}, {}
  local taken, claimed, bytes, payloads = 0, 0, 0, 0

  -- The lowest payloads of an id, with their scores, up to max_payloads or until the claim is full.
  local function read_lowest(source)
    local lowest, step = {}, FIRST_STEP
    local function has_room() return #lowest / 2 < max_payloads and bytes < max_bytes end
    repeat
      local page = redis.call('ZRANGE', source, #lowest / 2, #lowest / 2 + step - 1, 'WITHSCORES')
      step = math.min(step * 2, LAST_STEP)
      for i = 1, #page, 2 do
        if not has_room() then break end
        lowest[#lowest + 1], lowest[#lowest + 2] = page[i], page[i + 1]
        bytes = bytes + #page[i]
      end
    until #page == 0 or not has_room()
    return lowest
  end

  -- Takes at most max_payloads of an id that has several. What stays behind keeps its place in the queue.
  local function take_several(id, perform_in, head)
    local source, target = P .. 'payloads:' .. id, P .. 'claim:' .. id
    local lowest = read_lowest(source)
    if redis.call('ZCARD', source) <= #lowest / 2 then
      redis.call('RENAME', source, target)
    else
      redis.call('ZREMRANGEBYRANK', source, 0, #lowest / 2 - 1)
      if #lowest > 2 then zadd_lowest(target, lowest) end
      leftovers[#leftovers + 1] = perform_in
      leftovers[#leftovers + 1] = id
    end
    payloads = payloads + #lowest / 2
    if #lowest == 2 then
      local record = head .. ':' .. lowest[2] .. ':' .. lowest[1]
      return record, record
    end
    table.insert(lowest, 1, head)
    return head .. ':*', lowest
  end

  local step = FIRST_STEP
  local retry_counts = redis.call('EXISTS', P .. 'retries') == 1
  while taken < count and bytes < max_bytes and payloads < max_in_all do
    local last = math.min(taken + step, count)
    step = math.min(step * 2, LAST_STEP)
    local held = redis.call('HMGET', P .. 'payloads', unpack(ids, taken + 1, last))
    local retries = retry_counts and redis.call('ZMSCORE', P .. 'retries', unpack(ids, taken + 1, last))
    for i = 1, #held do
      if bytes >= max_bytes or payloads >= max_in_all then break end
      taken = taken + 1
      local id, perform_in, text = ids[taken], found[taken * 2], held[i]
      local retry_count = retries and retries[i] or '-1'
      local record, returned
      if text == '*' then
        record, returned = take_several(id, perform_in, perform_in .. ':' .. retry_count)
      elseif text then
        record = perform_in .. ':' .. retry_count .. ':' .. text
        returned = record
        bytes = bytes + #text
        payloads = payloads + 1
      end
      if record then
        claim[claimed + 1], claim[claimed + 2] = id, record
        claimed = claimed + 2
        reply[claimed + 1], reply[claimed + 2] = id, returned
      end
    end
  end

  if taken > 0 then
    -- What was taken is the lowest of the index, so a range by rank does for all of it at once.
    redis.call('ZREMRANGEBYRANK', P .. 'due', 0, taken - 1)
    redis.call('HDEL', P .. 'payloads', unpack(ids, 1, taken))
    if retry_counts then redis.call('ZREM', P .. 'retries', unpack(ids, 1, taken)) end
    for i = 1, #leftovers, 2 do
      redis.call('ZADD', P .. 'due', leftovers[i], leftovers[i + 1])
      redis.call('HSET', P .. 'payloads', leftovers[i + 1], '*')
      bag_fold(P .. 'payloads', leftovers[i + 1])
    end
    if claimed > 0 then hset_many(P .. 'claim', claim, claimed) end
  end
  if claimed == 0 then
    reply[2] = oldest_due(P, now)
  else
    reply[2] = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or ''
  end
  return reply
end
