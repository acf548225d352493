"""Mover: a thread of a node that moves the shards of a queue while it is being resharded (queue/resharding.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.beats.hands import ring_all
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.resharding import note_moved, read_progress
from lowkiq.errors import LowkiqError, Moved, ShardsCountMismatch
from lowkiq.log import get_logger
from lowkiq.node.mishaps import LastingThread
from lowkiq.node.runtime import Runtime
from lowkiq.queue import keys, resharding
from lowkiq.queue.call import raise_first
from lowkiq.queue.keys import Layout
from lowkiq.queue.resharding import Route
from lowkiq.queue.shard import Owned, renew
from lowkiq.shared_page import DeadNode

logger = get_logger()

#: Seconds of a mover's leases: of one that dies another takes over after that. It moves for milliseconds at a time.
TTL: Final = 5.0
#: Seconds between looks whether it is its turn.
TURN: Final = 1.0
#: Seconds between looks whether a shard's owner has given it back: at first, and at most.
ASK_FROM, ASK_TO = 0.005, 0.2
#: Seconds between notes of how far it is, which people see.
NOTE: Final = 0.25


class Mover(LastingThread):
    """
    It lives as long as a queue of its node is being resharded. Of all nodes' movers one has its turn: a key that lapses
    says whose. That saves work and no more: what makes it safe are the leases of the shards.
    """

    def __init__(self, runtime: Runtime, beat_soon: Callable[[], None]) -> None:
        super().__init__("lowkiq-mover", runtime.mishaps)
        #: Has the node tell, and hear, meanwhile who is there for the new shards: they are to be run at once.
        self._beat_soon = beat_soon
        self._runtime = runtime
        self._caller = runtime.caller
        #: Its name as an owner: the node itself has shards of its own.
        self.owner = runtime.node + keys.MOVER
        self._turn_at = self._renewed_at = self._noted_at = 0.0
        self._unnoted = 0

    def stop(self) -> None:
        """Ends it soon; another node goes on."""
        self._is_over.set()

    def _work(self) -> None:
        while not self._is_over.is_set():
            moving = {queue: layout for queue, layout in self._runtime.layouts.items() if layout.is_moving}
            if not moving:
                return
            for queue, layout in moving.items():
                try:
                    if self._has_turn(queue):
                        self._move(queue, layout)
                except RedisError as error:
                    self._runtime.outage.met(error)
                except ShardsCountMismatch as error:
                    self._give_way(queue, layout, error)
                except LowkiqError as error:  # another mover is faster, or goes on where this one was thought dead
                    logger.info("move_interrupted", queue=queue, why=str(error)[:300])
                except Exception as error:  # noqa: BLE001 (other queues are moved all the same)
                    self._mishaps.met("move_failed", error, "it is tried again each second", queue=queue)
            self._beat_soon()
            self._is_over.wait(TURN)

    def _move(self, queue: str, layout: Layout) -> None:
        left = resharding.unfinished(self._caller, self._runtime.namespace, queue, layout)
        for index in left:
            route = Route.of(self._runtime.namespace, queue, layout, index)
            pace = ASK_FROM
            while (epoch := self._acquire(route)) is None:
                if self._is_over.wait(pace) or not self._has_turn(queue):
                    return
                pace = min(pace * 2, ASK_TO)
            logger.info("moving", queue=queue, shard=index, of=layout.old_count, to=layout.shards_count)
            if not self._empty(queue, route, epoch):
                return
        if resharding.end(self._caller, self._runtime.namespace, queue, layout):
            self._note(queue, force=True)
            took = read_progress(self._caller, self._runtime.namespace, queue)
            logger.info("resharded", queue=queue, shards=layout.shards_count, before=layout.old_count)
            says = f"Queue {queue} was resharded from {layout.old_count} to {layout.shards_count} shards"
            if took:
                says += f": {took.moved:,} jobs moved in {took.seconds:.1f} s"
            note_deed(self._caller, self._runtime.namespace, queue, "resharded", says, self._runtime.node)
            ring_all(self._caller, self._runtime.namespace)

    def _give_way(self, queue: str, layout: Layout, error: ShardsCountMismatch) -> None:
        """Has a reshard that a failover has lost end first, if what is in the way is of that."""
        first = resharding.give_way(self._caller, self._runtime.namespace, queue, layout)
        if first is None:
            self._mishaps.met("move_refused", error, "it is tried again each second", queue=queue)
            return
        logger.warning("lost_reshard_found", queue=queue, shards=first.shards_count, gives_way=layout.shards_count)
        says = (
            f"Queue {queue} gets {first.shards_count} shards, not {layout.shards_count}: a failover had lost that "
            f"reshard, which has jobs in its shards. Once it is over, reshard to {layout.shards_count} again"
        )
        note_deed(self._caller, self._runtime.namespace, queue, "reshard", says, self._runtime.node)
        ring_all(self._caller, self._runtime.namespace)

    def _acquire(self, route: Route) -> str | None:
        """The epoch of the lease of an old shard; None as long as its owner has not given it back."""
        dead = self._runtime.dead_nodes()
        dead += [DeadNode(node.name + keys.MOVER, ()) for node in dead]
        for is_marked in (False, True):
            call = route.acquire(self.owner, TTL, self._runtime.settings.max_crashes, dead, is_marked=is_marked)
            (result,) = self._caller.run_all([call])
            if isinstance(result, Owned):
                self._renewed_at = clock.monotonic()
                return result.epoch
            if isinstance(result, Exception) and not isinstance(result, Moved):
                raise result
            if not isinstance(result, Moved):
                return None
        return None

    def _empty(self, queue: str, route: Route, epoch: str) -> bool:
        """Moves all that a shard holds. False: the node ends, and has given it back."""
        for moved in resharding.steps(self._caller, route, self.owner, epoch):
            self._unnoted += moved
            self._note(queue)
            self._has_turn(queue)
            if clock.monotonic() - self._renewed_at > TTL / 5:
                self._renewed_at = clock.monotonic()
                raise_first(self._caller.run_all([renew([route.old], self.owner, [epoch], TTL)]))
            if self._is_over.is_set():
                self._caller.run_all([route.old.release(self.owner, epoch, 0, "lease")])
                return False
        return True

    def _has_turn(self, queue: str) -> bool:
        """Takes its turn, or keeps it, if no other mover has it."""
        now = clock.monotonic()
        if now - self._turn_at < TURN:
            return True
        key = keys.resharding(self._runtime.namespace, queue) + keys.MOVER
        is_set = self._caller.command("SET", key, self.owner, "NX", "EX", int(TTL))
        if not is_set and self._caller.command("GET", key) != self.owner.encode():
            return False
        if not is_set:
            self._caller.command("EXPIRE", key, int(TTL))
        self._turn_at = now
        return True

    def _note(self, queue: str, *, force: bool = False) -> None:
        now = clock.monotonic()
        if force or now - self._noted_at > NOTE:
            note_moved(self._caller, self._runtime.namespace, queue, self._runtime.node, self._unnoted)
            self._noted_at, self._unnoted = now, 0
