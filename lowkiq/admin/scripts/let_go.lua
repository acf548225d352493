--! allow-oom
-- let_go: have held ids be claimed again (holding.lua): what is queued of them is due at its own time, or now. Repeating
-- it changes nothing.
-- KEYS  1 shard prefix
-- ARGV  1 layout, then ids
-- returns how many were held   errors: LAYOUT, NEWER
--@ shard clock layout
--@ parking unpark
--@ bell ring
--@ notes note
local P = KEYS[1]
local refusal, _, last_score = check_layout(P, ARGV[1], true)
if refusal then return refusal end

local now, gone, earliest = shard_now(P, last_score), {}, math.huge
for i = 2, #ARGV do
  local id = ARGV[i]
  if redis.call('ZREM', P .. 'held', id) == 1 then
    redis.call('HDEL', P .. 'holds', id)
    note(P, 'let_go', id, '')
    gone[#gone + 1] = id
  end
end
-- Of one that runs this waits behind its run again once a claim meets it.
if #gone > 0 then
  unpark(P, now, gone)
  for _, due in ipairs(redis.call('ZMSCORE', P .. 'due', unpack(gone))) do
    if due and due ~= 'inf' then earliest = math.min(earliest, due * 1000000) end
  end
end
if earliest < math.huge then ring(P, earliest, now) end
return #gone
