"""Ground: what all who act in a history share: the calls, the book of what has happened, and who there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.errors import BeingResharded, Fenced, Moved, OtherLayout, Paused, Refused, StaleClaim, Unsettled
from lowkiq.job import shard_of
from lowkiq.queue.call import Call
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.letters import Letter
from lowkiq.queue.push import Producer
from lowkiq.queue.shard import Shard, shards_of
from tests.pairs.book import Book
from tests.pairs.capability import Capability
from tests.pairs.jobs import QUEUE, SECOND, SHARDS, Hand, Lease
from tests.pairs.rig import NAMESPACE, Rig
from tests.queue.look import LOOK, Look

#: What a call may be told that comes too early, or too late.
REFUSALS = (Fenced, Moved, Paused, BeingResharded, Refused, OtherLayout, StaleClaim, Unsettled)


class Ground:
    """What is known of a history."""

    def __init__(self, rig: Rig, kinds: Sequence[type[Capability]], *, is_equal_last: bool) -> None:
        self.rig, self.caller = rig, rig.caller
        self.clock = rig.clock
        self.book = Book(is_equal_last=is_equal_last)
        self.layout = Layout(2, SHARDS)
        self.leases: dict[str, Lease] = {}
        #: Claims that outlive their owner's hold of the shard.
        self.away: list[Hand] = []
        #: Leases that were lost, whose nodes may act still.
        self.ghosts: list[Lease] = []
        #: Id → the epoch under which it ran last; prefix → that of the shard's last owner.
        self.epochs: dict[str, int] = {}
        self.owners: dict[str, int] = {}
        self.nodes = ["n0", "n1", "n2"]
        #: Old shards that are being moved.
        self.held_by_movers: set[str] = set()
        self.sent: list[Call[Any]] = []
        #: Letters that have arrived, and that nobody was told of yet.
        self.received: list[Sequence[Letter]] = []
        self.log: list[str] = []
        self._serial = 0
        self._named = len(self.nodes)
        self._shards: dict[Layout, list[Shard]] = {}
        self.max_crashes = 99
        #: The ids that the last settle has acked, in Redis, too.
        self.acked_now: set[str] = set()
        self.rounds = 0
        self.has_failed_over = False
        #: The history is over, and what is left is run.
        self.is_working_off = False
        self.caller.world = self
        opened(self.caller, NAMESPACE, {QUEUE: SHARDS})
        self.producer = Producer(self.caller, NAMESPACE, QUEUE, SHARDS)
        self.is_clock_steady = not any(kind.sets_clock_back for kind in kinds)
        self.capabilities: list[Capability] = []

    # ── whom there is ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now(self) -> int:
        """Redis's clock, in microseconds."""
        return self.clock.now

    @property
    def shards(self) -> list[Shard]:
        """Those that there are; while they are moved the old ones come first."""
        if self.layout not in self._shards:
            self._shards[self.layout] = shards_of(NAMESPACE, {QUEUE: self.layout})
        return self._shards[self.layout]

    def shard_of(self, id: str) -> Shard:
        """The shard that an id goes to in the end."""
        count = self.layout.shards_count
        return self.shards[len(self.shards) - count + shard_of(id.encode(), count)]

    @property
    def actions(self) -> UndoableActions:
        return UndoableActions(self.caller, self.shards, max_id_bytes=1_000)

    def new_node(self) -> str:
        self._named += 1
        return f"n{self._named}"

    @property
    def nodes_ever(self) -> list[str]:
        """Those that live, and the dead."""
        return [f"n{number}" for number in range(self._named + 1)]

    def hands(self) -> list[Hand]:
        """All claims in hand, also those that outlive their owner's hold of the shard."""
        return [*self.own_hands(), *self.away]

    def own_hands(self) -> list[Hand]:
        """Those of nodes that own their shard."""
        return [hand for lease in self.leases.values() for hand in lease.hands.values()]

    def capability(self, kind: type[Capability]) -> Any:
        return next((one for one in self.capabilities if isinstance(one, kind)), None)

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, call: Call[Any]) -> Any:
        """What a call gives, or how it is refused."""
        return self.run_all([call])[0]

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        results = self.caller.run_all(calls)
        for call, result in zip(calls, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, REFUSALS):
                raise AssertionError(f"{call.script} was told {result!r}") from result
        return results

    def hear_of_letters(self) -> None:
        """Tells who sends them what has arrived."""
        arrived, self.received = self.received, []
        for some in arrived:
            for capability in self.capabilities:
                capability.on_received(some)

    def tell(self, what: str) -> None:
        """Notes what was done, for the report of a failure."""
        self.log.append(f"{(self.now % (1 << 40)) / SECOND:.6f} {what}")

    # ── what Redis holds ────────────────────────────────────────────────────────────────────────────────────────────

    def looks(self) -> list[Look]:
        """All shards at this moment."""
        replies = self.rig.eval_all(LOOK, [shard.prefix for shard in self.shards])
        return [Look({key.decode(): value for key, *value in keys}, names) for keys, names in replies]

    def read(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The payloads that are queued, claimed and dead, by id, while no shard is moved."""
        looks = self.looks()
        for look in looks:
            look.check_tags()
        return _together(look.queued() for look in looks), *self.in_hand_and_dead(looks)

    def in_hand_and_dead(self, looks: Sequence[Look] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
        """The payloads that are claimed and dead, by id; while shards are moved an id may be in two of them."""
        looks = looks or self.looks()
        return _together(look.claimed() for look in looks), _together(look.morgue() for look in looks)

    def check(self) -> None:
        """Raises AssertionError if Redis holds something else than the book, or a capability says so."""
        if not self.layout.is_moving:
            self.book.compare(*self.read())
        for capability in self.capabilities:
            capability.check()


def _together(shards: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found = dict[str, Any]()
    for jobs in shards:
        for id, job in jobs.items():
            found[id] = found.get(id, {}) | job.payloads
    return found
