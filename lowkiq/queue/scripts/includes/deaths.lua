-- Deaths of nodes, as they are counted against what ran then.

--- death
--@ claimed read
-- Counts the death of the claim's holder against the ids that ran then (I7). `ran` is '' when nobody knows what did: then
-- all of the claim may have; or '-' for nothing; or for each claim that ran 'number:jobs:after', with a space between
-- them: so many jobs of the claim with that number, and so many that came after them, since settled jobs are those
-- before. Of a claim that is not named nothing ran.
--
-- Of those that ran at once nobody knows which killed the node, so their first death makes them suspects and no more.
-- It is held against a suspect that ran alone on its node (isolate.lua), and only then it is buried, as soon as it has
-- reached max_crashes. Returns the deaths of ids that are to be buried.
local function which_ran(ran, number, count)
  local jobs, after = 0, 0
  if ran == '' then jobs = count end
  for word in string.gmatch(ran ~= '-' and ran or '', '%S+') do
    local claim, some, behind = string.match(word, '^(%d+):(%d+):(%d+)$')
    if not claim then return 1, count end
    if claim == number then jobs, after = some, behind end
  end
  if jobs + after > count then return 1, count end
  return count - after - jobs + 1, count - after
end

local function count_death(P, claim, ran, max_crashes)
  local ids = read_claim(claim)
  local alone = claim.epoch and (claim.alone or '') or redis.call('HGET', P .. 'owner', 'alone') -- away.lua
  local first, last = which_ran(ran, claim.number, #ids)

  local function count(deaths, id)
    local died = (tonumber(redis.call('HGET', P .. deaths, id)) or 0) + 1
    redis.call('HSET', P .. deaths, id, string.format('%.0f', died))
    return died
  end

  local doomed = {}
  for i = first, last do
    local id = ids[i]
    if alone == claim.number .. ' ' .. id then
      local died = count('crashes', id)
      if died >= max_crashes then doomed[id] = died end
    else
      count(redis.call('HEXISTS', P .. 'crashes', id) == 0 and 'crashes' or 'crowds', id)
    end
  end
  return doomed
end
