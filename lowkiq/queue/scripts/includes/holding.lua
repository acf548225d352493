-- `held` has the ids that somebody holds, by since when (Redis's clock), and `holds` who and why, as JSON. A held id is
-- never claimed: what is due of it is parked when a claim meets it, as what waits behind a run is (parking.lua), at inf in
-- `due`, with its own time in `behind`; and it stays there when such a run ends. Nothing of it is handed over: while an id
-- of the shard is held no claim is open (push.lua).

--- park
--@ parking park
-- Parks those of these due ids that are held. Returns how many.
local function park_held(P, ids, count)
  local since, held = redis.call('ZMSCORE', P .. 'held', unpack(ids, 1, count)), {}
  for i = 1, count do held[ids[i]] = since[i] or nil end
  return park_running(P, ids, count, held)
end
