-- What is kept of a deleted job, so that it can be undone (put_away.lua tells what its words are).

--- words
local WORDS = 12

--- keep
--@ kept words

-- Notes a job under a name, for so many seconds; a word that there is not is false or nil.
local function keep_job(kept, id, words, seconds)
  for i = 1, WORDS do words[i] = words[i] and #words[i] .. ':' .. words[i] or '-' end
  redis.call('HSET', kept, id, table.concat(words))
  redis.call('EXPIRE', kept, seconds)
end
