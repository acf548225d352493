"""ClaimsAhead: the claims that wait behind an idle thread's bell, so that the push that rings has one of them made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import NoScriptError

from lowkiq.store.call import Call, meaning
from lowkiq.store.shard import Claim, answer

if TYPE_CHECKING:
    from lowkiq.node.shard_handler import ShardHandler
    from lowkiq.store.call import Caller
    from lowkiq.store.wire import Command

#: Shards whose next claim waits. A thread with more of them claims when it has heard: to look at all of them at each
#: ring would cost Redis more than the round trip does.
MOST: Final = 16


class Taken(NamedTuple):
    """The claim that was made."""

    handler: ShardHandler
    epoch: str
    claim: Claim


class ClaimsAhead:
    """Of one thread. What it asks is one call for all its shards, of which at most one is claimed."""

    def __init__(self, handlers: Sequence[ShardHandler], caller: Caller) -> None:
        self._handlers = handlers
        self._caller = caller
        self._call: Call[tuple[int, Claim] | None] | None = None
        self._claims: list[tuple[ShardHandler, str]] = []

    @property
    def are_asked(self) -> bool:
        """Whether Redis may make one of them at any moment."""
        return self._call is not None

    def ask(self) -> Command | None:
        """The command that waits, if there is one."""
        calls, claims = [], []
        for handler in self._handlers if len(self._handlers) <= MOST else ():
            if handler.holds(handler.epoch) and not handler.is_unknown:
                epoch, claim_calls = handler.claim_calls()
                if epoch:
                    calls += claim_calls
                    claims.append((handler, epoch))
        if not calls:
            return None
        call = answer(calls)
        words = self._caller.words(call)
        self._call, self._claims = call, claims
        return words

    def end(self, reply: Any) -> tuple[Taken | None, list[ShardHandler]]:
        """The reply has come, or is lost: what was taken, and the shards of which nobody knows whether they were."""
        call, claims = self._call, self._claims
        self._call, self._claims = None, []
        result = None if call is None or isinstance(reply, NoScriptError) else meaning(call, reply)
        if isinstance(result, Exception):
            return None, [handler for handler, _ in claims]
        for position, (handler, epoch) in enumerate(claims):
            if not result or position != result[0]:
                handler.unclaimed(epoch)
        if not result:
            return None, []
        handler, epoch = claims[result[0]]
        return Taken(handler, epoch, result[1]), []
