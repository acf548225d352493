"""
SharedPage: memory that a node shares with its supervisor, which outlives the node.

A node writes what each of its threads runs, so that after its death only those jobs are suspected of it, and which
processes end with it. Its supervisor writes a bulletin: which nodes are dead, and what people should know of it.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from lowkiq.redaction import redact_text
from lowkiq.tree_page import TreePage

#: Threads of a node that have a seat. What more of them run isn't known after a death.
THREAD_SEATS: Final = 256
#: Claims whose jobs run on the event loop that have one.
MOST_LOOP_SEATS: Final = 1024
SEATS: Final = THREAD_SEATS + MOST_LOOP_SEATS
#: Bytes of a seat: the place, the claim's number, jobs and batch_size, the shard's prefix with its length, and whether
#: it runs in a process of its own.
SEAT_BYTES: Final = 512
#: Bytes of the bulletin. Untouched pages of the mapping cost no memory.
BULLETIN_BYTES: Final = 64 << 10

_HEAD: Final = struct.Struct("<QQIIH?")
#: Jobs of a claim of which any may run.
_ANY: Final = 1 << 31
#: Length and checksum of a bulletin: one that is half written isn't read.
_BULLETIN_HEAD: Final = struct.Struct("<II")
_BULLETIN_AT: Final = SEATS * SEAT_BYTES
#: A byte that is set once something runs that has no seat: then nobody knows what ran.
_UNKNOWN_AT: Final = _BULLETIN_AT + BULLETIN_BYTES
#: Process groups that are to end with the node, beside its own: of its fork server, and of helpers, which may be as
#: many as there are threads, and as many again that are on their way out.
MOST_GROUPS: Final = 2048
_GROUP: Final = struct.Struct("<I")
_GROUPS_AT: Final = _UNKNOWN_AT + 8
#: Why the node refused to start, in a line: bytes of it.
REFUSAL_BYTES: Final = 600
_REFUSAL_AT: Final = _GROUPS_AT + MOST_GROUPS * _GROUP.size


class Running(NamedTuple):
    """A batch that a thread had begun and not ended, by its place in its shard's claim."""

    #: Prefix of the shard's keys.
    shard: str
    #: Number of the claim.
    claim: int
    #: Jobs of the batch, and jobs of the claim that come after them.
    jobs: int
    after: int
    #: It had a process of its own: that this outlived the node's death, or caused it, nobody knows.
    is_apart: bool = False


class DeadNode(NamedTuple):
    """A node that is known to be dead, so that its leases need not run out."""

    name: str
    #: What ran when it died; None: nobody knows, so every job that it had claimed is suspected.
    running: tuple[Running, ...] | None = None

    def ran(self, shard: str) -> str:
        """
        The jobs of that shard that ran, for scripts: '' unknown, '-' none, or of each claim that ran its number, jobs
        and jobs after them, with an 'a' behind if they ran apart.
        """
        if self.running is None:
            return ""
        runs = (f"{run.claim}:{run.jobs}:{run.after}{'a' * run.is_apart}" for run in self.running if run.shard == shard)
        return " ".join(runs) or "-"


class Event(NamedTuple):
    """Something that a supervisor has seen or decided, for the incidents."""

    #: Its name: no other event of any supervisor has it.
    key: str
    #: When it was, by lowkiq.clock.monotonic, which all processes of a machine share.
    at: float
    kind: str
    severity: str
    says: str
    #: The node's name, if it was about one.
    node: str = ""


class Answer(NamedTuple):
    """The supervisor's answer to what a node has asked."""

    #: The request's.
    id: str
    #: "doing" or "refused".
    state: str
    says: str


class Bulletin(NamedTuple):
    """News of the supervisor for a running node."""

    dead_nodes: tuple[DeadNode, ...] = ()
    #: Sentences for people, which the node's heartbeat carries: what is wrong with other slots.
    notices: tuple[str, ...] = ()
    #: Its last events, oldest first, and its last answers.
    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()
    #: How many nodes there are to be in its slots, those that boot for the first time left out; 0: it doesn't tell.
    nodes: int = 0


class Seat:
    """A thread's place: which batch of which claim it runs. `begin` once a claim, `place` once a batch, `end`."""

    def __init__(self, page: mmap.mmap, number: int) -> None:
        self._page, self._at = page, number * SEAT_BYTES
        #: How many jobs of the claim there are to the end of the batch that runs; 0: nothing does. One store a batch is
        #: all that a job may cost.
        self.place = memoryview(page)[self._at : self._at + 8].cast("Q")

    def begin(self, shard: str, claim: int, jobs: int, batch_size: int, *, is_apart: bool = False) -> None:
        """
        Names the claim of which batches are to run; with a batch_size of 0 any of its jobs may run at any time. What is
        apart has a process of its own.
        """
        prefix = shard.encode()
        self.place[0] = 0  # never the place of one claim with the name of another
        if len(prefix) > SEAT_BYTES - _HEAD.size:
            self._page[_UNKNOWN_AT] = 1
            return
        _HEAD.pack_into(self._page, self._at, 0, claim, jobs, batch_size, len(prefix), is_apart)
        start = self._at + _HEAD.size
        self._page[start : start + len(prefix)] = prefix

    @contextlib.contextmanager
    def loading(self, shard: str, claim: int) -> Iterator[None]:
        """Takes the whole claim for what runs: code of the user's loads its payloads."""
        self.begin(shard, claim, 1, 0)
        self.place[0] = 1
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Nothing runs."""
        self.place[0] = 0

    def close(self) -> None:
        self.place.release()


class SharedPage:
    """The memory. It is anonymous, so a full or slow disk never stops a job, and a node is made before its fork."""

    def __init__(self, tree: TreePage | None = None) -> None:
        #: Shared by all nodes of a supervisor, and the node's place there.
        self.tree = tree or TreePage()
        self.place = self.tree.get_place()
        self._memory = mmap.mmap(-1, _REFUSAL_AT + REFUSAL_BYTES)
        self._seats: list[Seat] = []

    def close(self) -> None:
        """Unmap it from this process; others keep theirs. The supervisor does so once the node is dead."""
        self.tree.free_place(self.place)
        for seat in self._seats:
            seat.close()
        with contextlib.suppress(BufferError):  # a thread that never ended writes to its seat still
            self._memory.close()

    # ── the node's side ─────────────────────────────────────────────────────────────────────────────────────────────

    def seat(self, thread: int) -> Seat:
        """The place of a thread; those without one share the last, and from then on nobody knows what runs."""
        if thread >= THREAD_SEATS:
            self._memory[_UNKNOWN_AT] = 1
        return self._seat(min(thread, THREAD_SEATS - 1))

    def loop_seat(self, number: int) -> Seat:
        """One of the places of what runs on the event loop."""
        return self._seat(THREAD_SEATS + number)

    def _seat(self, number: int) -> Seat:
        seat = Seat(self._memory, number)
        self._seats.append(seat)
        return seat

    def note_group(self, place: int, group: int) -> None:
        """Notes, at one of MOST_GROUPS places, a process group that is to end with the node; 0: none any more."""
        _GROUP.pack_into(self._memory, _GROUPS_AT + place * _GROUP.size, group)

    def write_refusal(self, why: str) -> None:
        """Says why it can't start, without passwords of URLs. Of a long line the end is kept, which has the place."""
        self._memory[_REFUSAL_AT:] = (
            redact_text(why).encode("utf-8", "replace")[-REFUSAL_BYTES:].ljust(REFUSAL_BYTES, b"\0")
        )

    def read_bulletin(self) -> Bulletin:
        """The latest news; empty while it is being written."""
        length, checksum = _BULLETIN_HEAD.unpack_from(self._memory, _BULLETIN_AT)
        start = _BULLETIN_AT + _BULLETIN_HEAD.size
        text = self._memory[start : start + length]
        if not length or zlib.crc32(text) != checksum:
            return Bulletin()
        told: list[Any] = json.loads(text)
        missing: list[Any] = [[], [], [], [], 0]
        dead, notices, events, answers, nodes = told + missing[len(told) :]  # an older one has fewer
        return Bulletin(
            tuple(_dead_node(name, running) for name, running in dead),
            tuple(notices),
            tuple(map(Event._make, events)),
            tuple(map(Answer._make, answers)),
            nodes,
        )

    # ── the supervisor's side ───────────────────────────────────────────────────────────────────────────────────────

    def running(self) -> tuple[Running, ...] | None:
        """The batches that the node's threads ran, None if that isn't known: to be asked once it is dead."""
        if self._memory[_UNKNOWN_AT]:
            return None
        found = []
        for number in range(SEATS):
            place, claim, jobs, batch_size, length, is_apart = _HEAD.unpack_from(self._memory, number * SEAT_BYTES)
            if place:
                start = number * SEAT_BYTES + _HEAD.size
                shard = self._memory[start : start + length].decode(errors="replace")
                # All batches but the last are whole.
                some, after = (_ANY, 0) if not batch_size else ((place - 1) % batch_size + 1, max(jobs - place, 0))
                found.append(Running(shard, claim, some, after, is_apart))
        return tuple(found)

    @property
    def has_run_jobs(self) -> bool:
        """True if jobs ran in the node itself, or may have: to be asked once it is dead."""
        running = self.running()
        return running is None or not all(run.is_apart for run in running)

    def refusal(self) -> str:
        """Why the node could not start; "" if it has not said so."""
        return self._memory[_REFUSAL_AT:].rstrip(b"\0").decode("utf-8", "replace")

    def groups(self) -> list[int]:
        """The process groups that are to end with the node."""
        noted = _GROUP.iter_unpack(self._memory[_GROUPS_AT : _GROUPS_AT + MOST_GROUPS * _GROUP.size])
        return [group for (group,) in noted if group]

    def write_bulletin(self, bulletin: Bulletin) -> None:
        """Replaces the news. What doesn't fit is left out, the dead last: their leases run out by themselves."""
        dead, notices, events, answers = (list[Any](part) for part in bulletin[:4])
        parts = dead, notices, events, answers, bulletin.nodes
        while len(text := json.dumps(parts).encode()) > BULLETIN_BYTES - _BULLETIN_HEAD.size:
            news = events or answers or notices or dead
            del news[len(news) * 3 // 4 :]
        _BULLETIN_HEAD.pack_into(self._memory, _BULLETIN_AT, 0, 0)
        start = _BULLETIN_AT + _BULLETIN_HEAD.size
        self._memory[start : start + len(text)] = text
        _BULLETIN_HEAD.pack_into(self._memory, _BULLETIN_AT, len(text), zlib.crc32(text))


def _dead_node(name: str, running: Iterable[Iterable[Any]] | None) -> DeadNode:
    return DeadNode(name, None if running is None else tuple(map(Running._make, running)))
