"""A shard that holds very many ids of each kind: what waits, is held, blocked, dead, recurs, and all the rest."""

from __future__ import annotations

from typing import Any, Final

from redis import Redis

from lowkiq import Lowkiq
from lowkiq.admin.jobs.actions import CHUNK
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Owned, Shard

#: Ids that one call of the filling script makes.
AT_ONCE: Final = 5_000
#: What is there so many times: a kind of id each, all of it written here as scripts write it.
KINDS: Final = (
    "due", "later", "held", "parked", "waits", "blocked", "failed", "tagged", "throttled", "dead", "recurs", "asked",
    "letter", "tracked", "hot", "mark",
)  # fmt: skip
NODE: Final = "n"

FILL: Final = """
local P, kind, first, last = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local call, PAST, FUTURE = redis.call, '1500000000', '4000000000'
local function queue(id, due) call('ZADD', P .. 'due', due, id) call('HSET', P .. 'payloads', id, PAST .. ':p') end
local function hold(id, is_parked)
  queue(id, is_parked and 'inf' or PAST)
  if is_parked then call('HSET', P .. 'behind', id, PAST) end
  call('ZADD', P .. 'held', PAST, id)
end
local FILLS = {
  due = function(id) queue(id, PAST) end,
  later = function(id) queue(id, FUTURE) end,
  held = function(id) hold(id, false) call('HSET', P .. 'holds', id, '{}') end,
  parked = function(id) hold(id, true) call('HSET', P .. 'holds', id, '{}') end,
  waits = function(id, n)
    hold(id, true)
    call('HSET', P .. 'waits', id, '0')
    call('ZADD', P .. 'asks', PAST, id)
    call('ZADD', P .. 'waits:' .. id, 1, 'q 1 step')
    call('ZADD', P .. 'waits:report', n + 1, 'q 1 step-' .. n)
  end,
  blocked = function(id)
    queue(id, '1e+30')
    call('ZADD', P .. 'blocked', PAST, id)
    call('HSET', P .. 'errors', id, 'e')
  end,
  failed = function(id)
    queue(id, FUTURE)
    call('ZADD', P .. 'retries', 1, id)
    call('HSET', P .. 'errors', id, 'e')
  end,
  tagged = function(id, n)
    queue(id, PAST)
    call('HSET', P .. 'tags', id, 'eu')
    call('SADD', P .. 'tagged:eu', id)
    call('ZINCRBY', P .. 'tag_counts', 1, 'eu')
    local tenant = n % 2 == 0 and 'big' or id
    call('HSET', P .. 'tenants', id, tenant)
    call('ZADD', P .. 'lane:' .. tenant, PAST, id)
    call('ZADD', P .. 'lanes', 'NX', 1, tenant)
  end,
  throttled = function(id)
    queue(id, PAST)
    call('HSET', P .. 'rules', id, '60.000000::')
    call('ZADD', P .. 'spaced', FUTURE, id)
  end,
  dead = function(id)
    call('ZADD', P .. 'morgue', PAST, id)
    call('HSET', P .. 'morgue:payloads', id, PAST .. ':p')
    call('HSET', P .. 'morgue:errors', id, 'e')
    call('HSET', P .. 'morgue:newer', id, FUTURE)
  end,
  recurs = function(id)
    call('HSET', P .. 'recurring', id, 'entry')
    call('HSET', P .. 'recur_last', id, PAST)
    call('ZADD', P .. 'recurs', PAST, id)
  end,
  asked = function(id, n)
    queue(id, FUTURE)
    call('ZADD', P .. 'waiters', 1, id)
    call('ZADD', P .. 'waiters:' .. id, 1, 'q 1 1 1 x')
    call('ZADD', P .. 'waiters:one', 1, 'q 1 1 1 x-' .. n)
  end,
  letter = function(id, n) call('ZADD', P .. 'outbox', n, id) call('HSET', P .. 'letters', id, '1:x4:told1:q1:1') end,
  tracked = function(id) call('HSET', P .. 'tracks', id, 0) end,
  hot = function(_, n)
    call('ZADD', P .. 'payloads:hot', n, n)
    call('ZADD', P .. 'morgue:payloads:hot', n, n)
  end,
  mark = function(id) call('HSET', P .. 'checkpoints', id, 'x') call('HSET', P .. 'debounced', id, '1 1') end,
}
for n = first, last do FILLS[kind](kind .. '-' .. n, n) end
"""
ONCE: Final = """
local P = KEYS[1]
for _, id in ipairs({'report', 'one', 'hot'}) do
  redis.call('ZADD', P .. 'due', 4000000000, id)
  redis.call('HSET', P .. 'payloads', id, id == 'hot' and '*' or '1:p')
end
redis.call('HSET', P .. 'waits', 'report', '0')
redis.call('ZADD', P .. 'asks', 1, 'report')
redis.call('ZADD', P .. 'held', 1, 'report')
redis.call('ZADD', P .. 'waiters', 1, 'one')
redis.call('ZADD', P .. 'lanes', 1, '')
redis.call('ZADD', P .. 'morgue', 1, 'hot')
redis.call('HSET', P .. 'morgue:payloads', 'hot', '*')
redis.call('HSET', P .. 'morgue:errors', 'hot', 'e')
"""


class FullShard:
    """One such shard, and its owner."""

    def __init__(self, app: Lowkiq, queue: str, count: int, layout: int | Layout = 1) -> None:
        self.app, self.count = app, count
        self.caller: Caller = app.caller
        self.redis: Redis = app.redis()
        self.shard = Shard(app.settings.namespace, queue, 0, layout)
        self.prefix = self.shard.prefix
        self.epoch = ""
        self._fill()

    def _fill(self) -> None:
        owned = self.caller.run(self.shard.acquire(NODE, 3_600, 3))
        assert isinstance(owned, Owned)
        self.epoch = owned.epoch
        fill = self.redis.register_script(FILL)
        for kind in KINDS:
            for first in range(0, self.count, AT_ONCE):
                fill([self.prefix], [kind, first, min(first + AT_ONCE, self.count) - 1])
        self.redis.eval(ONCE, 1, self.prefix)

    def ids(self, kind: str, batch: int = CHUNK) -> list[str]:
        """Some ids of a kind, as many as an action has."""
        return [f"{kind}-{n}" for n in range(min(batch, self.count))]

    def call(self, script: str, *words: Any) -> Call[Any]:
        """A call whose words come behind the layout."""
        return Call(script, [self.prefix], [self.shard.layout, *words], lambda reply: reply)

    def owners(self, script: str, *words: Any) -> Call[Any]:
        """A call whose words come behind the owner's name and epoch."""
        return Call(script, [self.prefix], [NODE, self.epoch, *words], lambda reply: reply)
