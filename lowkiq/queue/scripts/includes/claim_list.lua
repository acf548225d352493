-- The claim is a list: an id, its record, the next id, its record ... in the order in which they were taken. A claim is
-- mostly written once and settled whole, and of that a list takes half of what a hash does. Who wants one id reads it all.
-- Returns its ids, and the record of each.
local function read_claim(P)
  local list = redis.call('LRANGE', P .. 'claim', 0, -1)
  local ids, records = {}, {}
  for i = 1, #list, 2 do
    ids[#ids + 1] = list[i]
    records[list[i]] = list[i + 1]
  end
  return ids, records
end
