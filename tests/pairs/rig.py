"""Rig: a Redis of which a history has all, with a clock that stands where the history sets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
import redis

from lowkiq import Lowkiq
from lowkiq.queue import letters
from lowkiq.queue.call import Call, Caller
from tests import mutants
from tests.queue.model.virtual_clock import BEGINNING, VirtualClock

if TYPE_CHECKING:
    from tests.pairs.ground import Ground

NAMESPACE = "p"
#: Scripts of which a packet may come twice, or late.
REPEATABLE = frozenset({
    "push", "push_apart", "claim", "settle", "finish", "release", "acquire", "renew", "abandon", "isolate",
    "checkpoint", "receive", "fire", "recur", "drop", "bury", "revive", "cancel", "hold", "let_go", "pause", "resume",
    "unblock", "perform_now", "put_away", "put_back", "wait", "rest", "stop_waiting", "track",
})  # fmt: skip
#: Calls that are remembered.
REMEMBERED = 40

DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    found[#found + 1] = key
    found[#found + 1] = redis.call('DUMP', key)
    found[#found + 1] = math.max(redis.call('PTTL', key), 0)
end
return found
"""


def dump(client: redis.Redis) -> list[Any]:
    """All keys of a Redis."""
    found: Any = client.eval(DUMP, 0)
    return list(found)


def restore(client: redis.Redis, there: list[Any]) -> None:
    """Puts them back in place of those that there are."""
    pipeline = client.pipeline(transaction=False)
    pipeline.flushdb()
    for key, value, ttl in zip(there[::3], there[1::3], there[2::3], strict=True):
        pipeline.restore(key, ttl, value)
    pipeline.execute()


class WatchedCaller(Caller):
    """A caller that tells the world of the calls that it sends; its time is the history's."""

    world: Ground

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.connections = None  # no push goes past `run_all`
        self.failovers = 0
        command = self.command
        self.command = lambda *words: self._time() if words == ("TIME",) else command(*words)

    @property
    def losses(self) -> int:
        return self.failovers

    def run_all(self, calls: Sequence[Call[Any]], replicas: Any = None) -> list[Any]:
        results = super().run_all(calls, replicas)
        known = self._choose()
        # What gets a stamp comes here once more, with it.
        told = [
            call
            for call, result in zip(calls, results, strict=True)
            if call.script in REPEATABLE and (call.stamp or not known[call.script].is_once)
            and not isinstance(result, Exception)
        ]  # fmt: skip
        self.world.sent = [*self.world.sent, *told][-REMEMBERED:]
        return results

    def _time(self) -> tuple[int, int]:
        return divmod(self.world.now, 1_000_000)


class Rig:
    """
    One for a process and its scripts. With `mutant` one safeguard of them is taken out (tests/mutants.py).

    Args:
        patches: holds as long as this is used.
    """

    def __init__(self, url: str, patches: pytest.MonkeyPatch, mutant: str = "") -> None:
        # A batch of two is one of many, or none would be.
        mutants.replace("payloads.lua", "local BULK = 24", "local BULK = 4", patches)
        if mutant:
            mutants.install(mutant, patches)
        self.app = Lowkiq(redis_url=url, namespace=NAMESPACE)
        self.redis = self.app.redis()
        self.clock = VirtualClock(self.redis, patches)
        client = self.app.caller.client
        assert isinstance(client, redis.Redis)
        self.caller = WatchedCaller(client)
        self._watch_letters(patches)

    def _watch_letters(self, patches: pytest.MonkeyPatch) -> None:
        """Tells the world of the letters that arrive."""
        receive = letters._receive

        def watched(shard: Any, some: Any, *epoch: Any) -> Call[int]:
            call = receive(shard, some, *epoch)

            def parse(reply: Any) -> Any:
                self.caller.world.received.append(some)  # what is raised here would be the call's result
                return call.parse(reply)

            return call._replace(parse=parse)

        patches.setattr(letters, "_receive", watched)

    def begin(self) -> None:
        """Forgets everything."""
        self.redis.flushdb()
        self.clock.set(BEGINNING)

    def eval_all(self, script: str, prefixes: Sequence[str]) -> list[Any]:
        """A script for each of these, in one round trip."""
        pipeline = self.redis.pipeline(transaction=False)
        for prefix in prefixes:
            pipeline.eval(script, 1, prefix, "")
        return pipeline.execute()

    def dump(self) -> list[Any]:
        """All keys there are."""
        return dump(self.redis)

    def restore(self, there: list[Any]) -> None:
        """Puts them back in place of those that there are; the clock goes on."""
        restore(self.redis, there)
        self.clock.set(self.clock.now)

    def close(self) -> None:
        self.caller.close()
        self.app.close()
