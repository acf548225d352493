-- Deaths of nodes, as they are counted against what ran then.

--- death
--@ claimed read
--@ shard stamp
-- How often a job may die beside others before it is buried (I7): an innocent one has ended long before, since what has
-- died with it waits ever longer.
local MOST_CROWDS = 24
-- From so many on it is tried: it is what the other deaths of its tree of processes have in common.
local TRIED = 2
local LONGEST_PAUSE = 600 -- seconds before it is tried again

-- Counts the death of the claim's holder against the ids that ran then (I7). `ran` is '' when nobody knows what did: then
-- all of the claim may have; or '-' for nothing; or for each claim that ran 'number:jobs:after', with a space between
-- them: so many jobs of the claim with that number, and so many that came after them, since settled jobs are those
-- before. Of a claim that is not named nothing ran.
--
-- Of those that ran at once nobody knows which killed the node. The first death of an id makes no difference: few jobs
-- run at two. `crashes` has that one, and each further one of which no other job can be the cause: at max_crashes the id is
-- buried. `crowds` has the others: with one it is a suspect, and runs in a process of its own (claim.lua), whose death
-- is nobody else's fault (settle.lua, crash). Nodes tell of no job in such a process as long as their supervisor lives. If
-- all of a tree has died, an id may have done it even so. From TRIED on a node starts it while nothing else of its tree
-- runs, if it can, and says so (isolate.lua); and each death has it wait for twice as long as the last one, so that
-- those who died with it, and are innocent, end meanwhile.
--
-- Returns the deaths of ids that are to be buried, and when others are due.
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

local function count_death(P, claim, ran, max_crashes, now)
  local ids = read_claim(claim)
  local alone = claim.epoch and (claim.alone or '') or redis.call('HGET', P .. 'owner', 'alone') -- away.lua
  local first, last = which_ran(ran, claim.number, #ids)

  local function count(deaths, id)
    local died = (tonumber(redis.call('HGET', P .. deaths, id)) or 0) + 1
    redis.call('HSET', P .. deaths, id, string.format('%.0f', died))
    return died
  end

  local doomed, pauses = {}, {}
  for i = first, last do
    local id = ids[i]
    if alone == claim.number .. ' ' .. id then
      local died = count('crashes', id)
      if died >= max_crashes then doomed[id] = died end
    elseif redis.call('HEXISTS', P .. 'crashes', id) == 0 then
      count('crashes', id)
    else
      local crowds = count('crowds', id)
      if crowds >= MOST_CROWDS then doomed[id] = crowds end
    end
    local crowds = tonumber(redis.call('HGET', P .. 'crowds', id)) or 0
    if crowds >= TRIED then
      pauses[id] = stamp(now + 1000000 * math.min(2 ^ math.min(crowds - TRIED, 32), LONGEST_PAUSE))
    end
  end
  return doomed, pauses
end
