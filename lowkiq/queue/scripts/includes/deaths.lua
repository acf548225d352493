-- Deaths of nodes, as they are counted against what ran then.

--- crowd
--@ shard stamp
-- How often a job may die beside others before it is buried (I7): an innocent one has ended long before, since what has
-- died with it waits ever longer.
local MOST_CROWDS = 24
-- From so many on it is tried: it is what the other deaths of its tree of processes have in common.
local TRIED = 2
local LONGEST_PAUSE = 600 -- seconds before it is tried again

local function add_death(P, deaths, id)
  local died = (tonumber(redis.call('HGET', P .. deaths, id)) or 0) + 1
  redis.call('HSET', P .. deaths, id, string.format('%.0f', died))
  return died
end

-- When it is due, if it is to pause.
local function due_after_death(P, id, now)
  local crowds = tonumber(redis.call('HGET', P .. 'crowds', id)) or 0
  if crowds < TRIED then return nil end
  return stamp(now + 1000000 * math.min(2 ^ math.min(crowds - TRIED, 32), LONGEST_PAUSE))
end

-- Counts a death that any of several may have caused. Returns how many there were, if the id is to be buried; or nil, and
-- when it is due, if it is to pause.
local function count_crowd(P, id, now)
  if redis.call('HEXISTS', P .. 'crashes', id) == 0 then
    add_death(P, 'crashes', id)
  else
    local crowds = add_death(P, 'crowds', id)
    if crowds >= MOST_CROWDS then return crowds end
  end
  return nil, due_after_death(P, id, now)
end

--- death
--@ claimed read
--@ deaths crowd
-- Counts the death of the claim's holder against the ids that ran then (I7). `ran` is '' when nobody knows what did: then
-- all of the claim may have; or '-' for nothing; or for each claim that ran 'number:jobs:after', with a space between
-- them: so many jobs of the claim with that number, and so many that came after them, since settled jobs are those
-- before; and an 'a' behind it, if they had a process of their own. Of a claim that is not named nothing ran.
--
-- Of those that ran at once nobody knows which killed the node. The first death of an id makes no difference: few jobs
-- run at two. `crashes` has that one, and each further one of which no other job can be the cause: at max_crashes the id is
-- buried. `crowds` has the others: with one it is a suspect, and runs in a process of its own (claim.lua), whose death
-- is nobody else's fault (settle.lua, crash). Where its node, or what makes such processes, dies instead, and its
-- supervisor lives, that is mostly not the job's doing: it counts as a death beside others, also of one that ran alone. If
-- all of a tree has died, an id may have done it even so. From TRIED on a node starts it while nothing else of its tree
-- runs, if it can, and says so (isolate.lua); and each death has it wait for twice as long as the last one, so that
-- those who died with it, and are innocent, end meanwhile.
--
-- Returns the deaths of ids that are to be buried, and when others are due.
local function which_ran(ran, number, count)
  local jobs, after, apart = 0, 0, ''
  if ran == '' then jobs = count end
  for word in string.gmatch(ran ~= '-' and ran or '', '%S+') do
    local claim, some, behind, where = string.match(word, '^(%d+):(%d+):(%d+)(a?)$')
    if not claim then return 1, count, '' end
    if claim == number then jobs, after, apart = some, behind, where end
  end
  if jobs + after > count then return 1, count, apart end
  return count - after - jobs + 1, count - after, apart
end

local function count_death(P, claim, ran, max_crashes, now)
  local ids = read_claim(claim)
  local alone = claim.epoch and (claim.alone or '') or redis.call('HGET', P .. 'owner', 'alone') -- away.lua
  local first, last, apart = which_ran(ran, claim.number, #ids)
  local doomed, pauses = {}, {}
  for i = first, last do
    local id = ids[i]
    if apart == '' and alone == claim.number .. ' ' .. id then
      local died = add_death(P, 'crashes', id)
      if died >= max_crashes then doomed[id] = died end
      pauses[id] = due_after_death(P, id, now)
    else
      doomed[id], pauses[id] = count_crowd(P, id, now)
    end
  end
  return doomed, pauses
end
