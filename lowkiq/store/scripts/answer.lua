--@ take
-- answer: claim the first of several shards that was rung. An idle thread sends it behind the BLPOP on its bell, so that
-- Redis runs it the moment a push rings.
-- KEYS  shard prefixes
-- ARGV  for each of them the eight of claim.lua
-- returns {position among KEYS, what claim.lua returns}, or nothing: none was rung, or they are refused
for i = 1, #KEYS do
  local claim = take(KEYS[i], true, unpack(ARGV, i * 8 - 7, i * 8))
  if claim and not claim.err then return {i, claim} end
end
return false
