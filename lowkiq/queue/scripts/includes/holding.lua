-- `held` has the ids that somebody holds, by since when (Redis's clock), and `holds` who and why, as JSON. A held id is
-- never claimed: what is due of it is parked when a claim meets it, as what waits behind a run is (parking.lua), at inf in
-- `due`, with its own time in `behind`; and it stays there when such a run ends. Nothing of it is handed over: while an id
-- of the shard is held no claim is open (push.lua). What waits for others (waiting.lua) is held in the same way, without
-- `holds`.

--- release
--@ parking unpark
--@ bell ring
--@ notes note
-- These ids are held no more: what is queued of them is due at its own time, or now. Of one that runs this waits behind its
-- run again once a claim meets it.
local function release_held(P, now, ids)
  if #ids == 0 then return end
  unpark(P, now, ids)
  local earliest = math.huge
  for i, due in ipairs(redis.call('ZMSCORE', P .. 'due', unpack(ids))) do
    note(P, 'let_go', ids[i], '')
    if due and due ~= 'inf' then earliest = math.min(earliest, due * 1000000) end
  end
  if earliest < math.huge then ring(P, earliest, now) end
end

--- held
-- Those of these due ids that are held.
local function held_of(P, ids, count)
  local since, held = redis.call('ZMSCORE', P .. 'held', unpack(ids, 1, count)), {}
  for i = 1, count do held[ids[i]] = since[i] or nil end
  return held
end
