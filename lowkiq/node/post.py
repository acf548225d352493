"""Post: the thread of a node that takes the letters of its shards along (queue/letters.py)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import structlog
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import Fenced, LowkiqError
from lowkiq.queue.call import Caller, chunked
from lowkiq.queue.letters import Homes, Outbox, ask_again, relay
from lowkiq.queue.shard import Shard

logger = structlog.get_logger("lowkiq")

#: Shards whose letters are taken along together.
TOGETHER: Final = 100
#: Seconds after which what has not arrived is tried again: at first, and at most.
AGAIN_FROM: Final = 0.05
AGAIN_TO: Final = 5.0
#: Seconds after which jobs that wait ask again for what they wait for.
ASK_AGAIN: Final = 60.0
#: Seconds after which it is logged again that letters do not arrive.
REMIND: Final = 30.0


class Sender(Protocol):
    """A lease, as far as its letters are concerned."""

    @property
    def shard(self) -> Shard: ...
    @property
    def epoch(self) -> str | None: ...


class Letterbox:
    """Where whoever learns, on any thread, that a shard of this node has letters says so."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._noted: set[Sender] = set()
        self._waits: set[Sender] = set()
        #: Some are on their way, or are to be tried again.
        self.has_taken = False

    @property
    def is_empty(self) -> bool:
        """True once all that was noted has arrived."""
        return not (self._noted or self.has_taken)

    def note(self, lease: Sender) -> None:
        """Has the letters of that shard be taken along."""
        with self._lock:
            self._noted.add(lease)
        self._wake.set()

    def note_waits(self, lease: Sender) -> None:
        """Has the jobs of that shard that wait for others be asked for again, when it is time."""
        with self._lock:
            self._waits.add(lease)

    def take_waits(self) -> set[Sender]:
        """Takes those out."""
        with self._lock:
            taken, self._waits = self._waits, set()
        return taken

    def take(self, timeout: float) -> set[Sender]:
        """Waits until there are some, at most so many seconds, and takes them out."""
        self._wake.wait(timeout)
        self._wake.clear()
        with self._lock:
            taken, self._noted = self._noted, set()
            self.has_taken = self.has_taken or bool(taken)
        return taken

    def wake(self) -> None:
        """Ends a wait."""
        self._wake.set()


class Post(threading.Thread):
    """
    Takes letters along as long as the node runs. It may be behind, or die: what it leaves in an outbox the shard's next
    owner takes along.

    Args:
        met, over: told of an error of Redis, and that it is back.
        fatal: told of what must stop the node.
    """

    def __init__(
        self,
        box: Letterbox,
        caller: Caller,
        namespace: str,
        node: str,
        *,
        met: Callable[[RedisError], None],
        over: Callable[[], None],
        fatal: Callable[[BaseException], None],
    ) -> None:
        super().__init__(name="lowkiq-post", daemon=True)
        self._box, self._caller, self._node = box, caller, node
        self._homes = Homes(caller, namespace)
        self._met, self._over, self._fatal = met, over, fatal
        #: What is to be tried again, when (monotonic), and after how many seconds the time after that.
        self._again: dict[Sender, tuple[float, float]] = {}
        self._logged_at = -math.inf
        #: When jobs of a shard that wait for others were asked for last (monotonic).
        self._asked_at: WeakKeyDictionary[Sender, float] = WeakKeyDictionary()
        self._is_stopping = False

    def stop(self) -> None:
        """Ends it once it has taken along what was noted."""
        self._is_stopping = True
        self._box.wake()

    def run(self) -> None:
        try:
            while True:
                is_last = self._is_stopping
                now = clock.monotonic()
                next_at = min((at for at, _ in self._again.values()), default=math.inf)
                taken = self._box.take(0.0 if is_last else min(max(next_at - now, 0.0), AGAIN_TO))
                now = clock.monotonic()
                due = taken | {lease for lease, (at, _) in self._again.items() if at <= now}
                self._ask_again(now)
                for some in chunked(due, TOGETHER):
                    self._take_along(some)
                self._box.has_taken = bool(self._again)
                if is_last:
                    return
        except BaseException as error:  # noqa: BLE001 (a thread must not die unnoticed)
            self._fatal(error)

    def _ask_again(self, now: float) -> None:
        for lease in self._box.take_waits():
            if lease.epoch is None or now - self._asked_at.get(lease, -math.inf) < ASK_AGAIN:
                continue
            self._asked_at[lease] = now
            try:
                ask_again(self._caller, lease.shard, self._node, lease.epoch, ASK_AGAIN)
            except RedisError as error:
                self._met(error)
            except LowkiqError:  # another node's by now, or moved
                continue

    def _take_along(self, leases: Collection[Sender]) -> None:
        outboxes = {Outbox(lease.shard, self._node, lease.epoch): lease for lease in leases if lease.epoch is not None}
        failed: Mapping[Outbox, Exception]
        try:
            failed = relay(self._caller, self._homes, list(outboxes))
            self._over()
        except RedisError as error:
            self._met(error)
            failed = dict.fromkeys(outboxes, error)  # it is not known what has arrived
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

    def _log(self, lease: Sender, error: Exception) -> None:
        now = clock.monotonic()
        if not isinstance(error, RedisError) and now - self._logged_at > REMIND and self._again[lease][1] >= AGAIN_TO:
            self._logged_at = now
            logger.warning(
                "letters_wait", queue=lease.shard.queue, shard=lease.shard.index, error=str(error)[:300],
                advice="what follows from its jobs is kept, and sent once that is mended",
            )  # fmt: skip
