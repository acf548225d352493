--@ take
-- claim: take due jobs of a shard.
-- KEYS  1 shard prefix
-- ARGV  1 node, 2 epoch, 3 number of this claim, 4 layout, 5 most jobs, 6 most payloads of a job, 7 most payloads in
--       all, 8 most bytes (take.lua)
-- returns and refuses what take.lua says
return take(KEYS[1], false, unpack(ARGV))
