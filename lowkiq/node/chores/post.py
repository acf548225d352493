"""Post: the thread of a node that takes the letters of its shards along (queue/letters.py)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import Fenced
from lowkiq.log import get_logger
from lowkiq.node.chores.burials import Burial, Burials
from lowkiq.node.chores.rounds import PAUSE, Rounds
from lowkiq.node.leases.lease import Lease
from lowkiq.node.mishaps import LastingThread
from lowkiq.node.noted import Owned
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import chunked
from lowkiq.queue.letters import ASKS_AFTER, Homes, Outbox, ask_again, relay

logger = get_logger()

#: Shards whose letters are taken along together.
TOGETHER: Final = 100
#: Seconds after which what has not arrived is tried again: at first, and at most.
AGAIN_FROM: Final = 0.05
AGAIN_TO = 5.0
#: Seconds after which jobs that wait ask again for what they wait for, at first (ask_again.lua).
ASK_AGAIN = ASKS_AFTER
#: Seconds after which it is logged again that letters do not arrive.
REMIND: Final = 30.0


class Post(LastingThread):
    """
    Takes letters along as long as the node runs. It may be behind, or die: what it leaves in an outbox the shard's next
    owner takes along.
    """

    def __init__(self, runtime: Runtime, burials: Burials) -> None:
        super().__init__("lowkiq-post", runtime.mishaps)
        self._burials = burials
        self._runtime, self._caller, self._node = runtime, runtime.caller, runtime.node
        self._box = runtime.letters
        self._homes = Homes(runtime.caller, runtime.namespace)
        #: What is to be tried again, when (monotonic), and after how many seconds the time after that.
        self._again: dict[Owned, tuple[float, float]] = {}
        self._logged_at = -math.inf
        self._asks = Rounds(self._ask_again, ASK_AGAIN)
        self._looks = Rounds(self._look_at_parked, 0.0)

    def stop(self) -> None:
        """Ends it once it has taken along what was noted."""
        self._is_over.set()
        self._box.wake()

    def _work(self) -> None:
        while True:
            is_last = self._is_over.is_set()
            now = clock.monotonic()
            next_at = min((at for at, _ in self._again.values()), default=math.inf)
            pause = PAUSE if self._asks.has_more or self._looks.has_more else AGAIN_TO
            taken = self._box.take(0.0 if is_last else min(max(next_at - now, 0.0), pause))
            now = clock.monotonic()
            due = taken | {lease for lease, (at, _) in self._again.items() if at <= now} | self._go_round(now)
            for some in chunked(due, TOGETHER):
                self._take_along(some)
            self._box.is_busy = bool(self._again) or self._burials.is_busy
            if is_last:
                return

    def _go_round(self, now: float) -> set[Owned]:
        """Goes on with its rounds. Returns the shards that may have letters by that."""
        self._asks.begin(self._runtime.waits.take_now(), now)
        self._looks.begin(self._runtime.parked.take_now(), now)
        try:
            self._looks.go_on()
            return self._asks.go_on()
        except RedisError as error:
            self._runtime.outage.met(error)
            return set()

    def _ask_again(self, lease: Owned, epoch: str, place: bytes) -> bytes:
        return self._caller.run(ask_again(lease.shard, self._node, epoch, place, ASK_AGAIN))

    def _look_at_parked(self, lease: Owned, epoch: str, place: bytes) -> bytes:
        return self._caller.run(lease.shard.look_at_parked(self._node, epoch, place))

    def _take_along(self, leases: Collection[Owned]) -> None:
        outboxes = {
            Outbox(lease.shard, self._node, epoch, partial(lease.holds, epoch)): lease
            for lease in leases
            if (epoch := lease.epoch) is not None
        }
        failed: Mapping[Outbox, Exception]
        try:
            failed = relay(self._caller, self._homes, list(outboxes))
            self._runtime.outage.over()
        except RedisError as error:
            self._runtime.outage.met(error)
            failed = dict.fromkeys(outboxes, error)  # it is not known what has arrived
        for outbox, lease in outboxes.items():
            if isinstance(lease, Lease):
                for letter in outbox.own:
                    self._burials.note(Burial(lease, outbox, letter))
        for lease in leases:
            if lease.epoch is None:
                self._again.pop(lease, None)
        for outbox, lease in outboxes.items():
            why = failed.get(outbox)
            if why is None or isinstance(why, Fenced):  # then it is another node's to do
                self._again.pop(lease, None)
                continue
            _, pause = self._again.get(lease, (0.0, AGAIN_FROM))
            self._again[lease] = (clock.monotonic() + pause, min(2 * pause, AGAIN_TO))
            self._log(lease, why)

    def _log(self, lease: Owned, error: Exception) -> None:
        now = clock.monotonic()
        if not isinstance(error, RedisError) and now - self._logged_at > REMIND and self._again[lease][1] >= AGAIN_TO:
            self._logged_at = now
            logger.warning(
                "letters_wait", queue=lease.shard.queue, shard=lease.shard.index, error=str(error)[:300],
                advice="what follows from its jobs is kept, and sent once that is mended",
            )  # fmt: skip
