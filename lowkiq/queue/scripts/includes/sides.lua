-- What a shard may know beside the payloads of its ids: each name that is in one of these tables, and how it is kept. `hinders`
-- says what can't be done the short way while a shard has one, or not at all: HINDERS.claim stands in a script for the keys of
-- all that hinder a claim. That list is written by the loader: to ask for all of them costs a script one command. What
-- hinders 'settle' hinders 'finish', too.
--
--   claim     the quick way of a claim (quick_claim.lua), and what claim.lua need not look for
--   settle    the quick way of a settle: a claim of which every job is done, and had one payload
--   finish    finish.lua, beside what hinders 'settle'
--   parting   jobs that are done with are known by their claim alone
--   acquire   there is nothing that the last owner of a shard has left
--   emptiness a shard that has one is not empty, even where none of its ids has anything that moves

--- move
-- Of ids: all of it goes with them to another shard. A third word, 'each', is for indexes, beside a zset for every id in it.
local SIDES = {
  {'retries', 'zset', hinders = 'claim'}, {'blocked', 'zset'}, {'held', 'zset', hinders = 'claim finish'}, {'holds', 'hash'},
  {'behind', 'hash', hinders = 'parting'}, {'errors', 'hash', hinders = 'settle parting'},
  {'crashes', 'hash', hinders = 'settle parting'}, {'crowds', 'hash', hinders = 'claim'},
  {'checkpoints', 'hash', hinders = 'settle parting acquire'}, {'tags', 'hash', hinders = 'claim acquire'},
  {'claimed_tags', 'hash', hinders = 'settle parting acquire'}, {'morgue:tags', 'hash'}, {'morgue:errors', 'hash'},
  {'morgue:newer', 'hash'}, {'tracks', 'hash', hinders = 'claim settle'},
  {'rules', 'hash', hinders = 'claim settle parting acquire'}, {'debounced', 'hash', hinders = 'claim acquire'},
  {'spaced', 'zset', hinders = 'claim finish'}, {'tenants', 'hash', hinders = 'settle parting acquire'},
  {'heard', 'hash', 'each'}, {'outbox', 'zset'}, {'recurring', 'hash'}, {'recur_last', 'hash'}, {'recurs', 'zset'},
  {'asks', 'zset'}, {'waits', 'hash', 'each'}, {'morgue:waits', 'hash', 'each'},
  {'waiters', 'zset', 'each', hinders = 'settle parting'},
}

--- stay
-- Of the shard itself, or moved in a way of its own: only the loader reads this.
local STATES = {
  {'payloads', 'hash', hinders = 'emptiness'}, {'due', 'zset', hinders = 'finish emptiness'},
  {'morgue', 'zset', hinders = 'emptiness'}, {'morgue:payloads', 'hash', hinders = 'emptiness'},
  {'claim', 'list', hinders = 'claim acquire'}, {'asides', 'hash', hinders = 'claim finish acquire emptiness'},
  {'away', 'hash', hinders = 'emptiness'}, {'cancels', 'hash', hinders = 'settle parting acquire'},
  {'paused', 'string', hinders = 'claim finish acquire'}, {'watch', 'zset', hinders = 'claim settle'},
  {'lanes', 'zset', hinders = 'claim emptiness'}, {'lanes_later', 'zset', hinders = 'claim emptiness'},
  {'feeders', 'hash', hinders = 'claim finish'},
}
