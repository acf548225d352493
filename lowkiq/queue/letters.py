"""
Letters: pushes that follow from a job that is done. A shard's outbox has them from the settle on, and its owner takes
them to the shards that they are for: in order, and each once, though either may die at any point (letters.lua).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, Self

from lowkiq.codec import join_words, split_words
from lowkiq.errors import LowkiqError, Moved
from lowkiq.job import FULL, KEPT_BYTES, EncodedJob
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller
from lowkiq.queue.homes import Ways
from lowkiq.queue.layouts import opened
from lowkiq.queue.shard import Shard
from lowkiq.settings import QUEUE_NAME

#: Letters that are read at a time, bytes of them (the last one may exceed these), and letters that a shard receives
#: at a time: a millisecond of Redis each, so that it is never five, whoever else wants the core.
PAGE: Final = 100
PAGE_BYTES: Final = 1 << 20
RECEIVED: Final = 50
#: Seconds after which jobs that wait ask again for what they wait for, at first (waiting.lua).
ASKS_AFTER: Final = 60.0
#: Letters of a batch, at most: what follows from it is written in one script, as it is settled.
MOST_LETTERS: Final = 1_000
#: How many words a letter of each kind has, the id first.
_WORDS: Final[Mapping[bytes, int]] = {
    b"push": len(FULL), b"forget": 1, b"ask": 2, b"told": 3, b"buried": 1, b"begun": 1,
}  # fmt: skip
#: Kinds that the shard's owner acts on itself, and sends nowhere (burials.py).
_OWN: Final = frozenset({b"buried", b"begun"})
#: Words of a letter as it is received: its name, its kind, and at most those of a push.
_RECEIVED: Final = 2 + len(FULL)


#: What this process sends is numbered: a shard takes nothing that comes after what was sent later.
_numbers: Final = count()
#: A queue, and an id.
Id = tuple[str, bytes]


class Letter(NamedTuple):
    """A letter in the outbox of a shard."""

    name: bytes
    #: It rises along the outbox.
    number: bytes
    #: The id from which it follows.
    of: bytes
    kind: bytes
    #: The queue that it is for, and the shards_count that this begins with.
    queue: str
    shards_count: int
    #: Those of a push, the id first.
    words: Sequence[bytes]

    @classmethod
    def parse(cls, name: bytes, number: bytes, record: bytes) -> Self:
        """Raises ValueError for what is no letter."""
        of, kind, queue, count, *words = split_words(record)
        to = queue.decode()
        is_one = len(words) == _WORDS.get(kind) and QUEUE_NAME.fullmatch(to) and count.isdigit()
        if not is_one or not 1 <= int(count) <= keys.MOST_SHARDS:
            raise ValueError("no letter")
        if kind == b"push":
            float(words[2] or 0)  # its score
            split_words(words[-1])  # for whom it waits
        return cls(name, number, of, kind, to, int(count), words)

    @property
    def place(self) -> float:
        """Its place in the outbox."""
        return float(self.number)

    @property
    def job(self) -> EncodedJob:
        """The job that a push has."""
        id, payload, score, *texts = self.words
        more = dict(zip(FULL[3:], (text.decode("utf-8", KEPT_BYTES) for text in texts), strict=True))
        return EncodedJob(id, payload, float(score) if score else "", **more)

    @property
    def to(self) -> Id:
        """What it is for."""
        return self.queue, self.words[0]

    @property
    def others(self) -> Iterator[Id]:
        """Those after which the job of a push is to run."""
        for name in split_words(self.words[-1]) if self.kind == b"push" else ():
            queue, _, id = name.partition(b" ")
            yield queue.decode("utf-8", "replace"), id.partition(b" ")[2]

    @property
    def following(self) -> bytes:
        """What takes its place once it has arrived, or is acted on: b"" if nothing does."""
        becomes = {b"push": b"forget", b"buried": b"begun"}.get(self.kind)
        if becomes is None:
            return b""
        return join_words([self.of, becomes, self.queue.encode(), b"%d" % self.shards_count, self.words[0]])


def push_letter(of: str, queue: str, shards_count: int, job: EncodedJob) -> bytes:
    """The record of a push of that job, which follows from that id."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in (getattr(job, name) for name in FULL)]
    return join_words([of.encode("utf-8", KEPT_BYTES), b"push", queue.encode(), b"%d" % shards_count, *words])


class Outbox:
    """
    The letters of one shard that this node owns, while they are taken along.

    Args:
        holds: says whether its lease has not run out yet. What was read before is not sent after that: by then the next
            owner may have had a letter received, and forgotten.
    """

    def __init__(self, shard: Shard, node: str, epoch: str, holds: Callable[[], bool]) -> None:
        self.shard, self.holds = shard, holds
        self._owner = (node, epoch)
        self.owner = (shard.prefix, epoch)
        #: The number up to which it was read; and whether there may be more.
        self._after = b"-inf"
        self.has_more = True
        #: Of those that have arrived, the name and what takes their place.
        self._arrived: list[Argument] = []
        #: Ids for which nothing more is to be taken along now, as something of theirs has not arrived.
        self.stuck: set[Id] = set()
        #: Those that are for its owner itself; they stay until that has acted on them.
        self.own: list[Letter] = []
        self._read_to = b""

    def turn(self) -> Call[list[Letter]]:
        """Notes what has arrived, and reads on."""
        arguments: list[Argument] = [*self._owner, self._after, PAGE, PAGE_BYTES, *self._arrived]
        return Call("relay", [self.shard.prefix], arguments, self._page)

    def _page(self, reply: list[bytes]) -> list[Letter]:
        self._arrived = []
        self.has_more = bool(reply)
        letters: list[Letter] = []
        for name, number, record in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
            try:
                letter = Letter.parse(name, number, record)
                (self.own if letter.kind in _OWN else letters).append(letter)
                if letter.kind in _OWN:
                    self.stuck.add(("", name))
            except ValueError:  # anybody may write to Redis: it stays, and others go past it
                self.stuck.add(("", name))
        self._read_to = reply[-2] if reply else b""
        return letters

    def become(self, letter: Letter, record: bytes) -> Call[object]:
        """Has that letter be another one; with b"" it goes."""
        return Call("relay", [self.shard.prefix], [*self._owner, "+inf", 1, 1, letter.name, record], list)

    def note(self, arrived: Iterable[Letter], stuck: Iterable[Letter]) -> None:
        """Notes what became of letters: of those that have arrived Redis is told with the next turn."""
        for letter in arrived:
            self._arrived += (letter.name, letter.following)
        self.stuck.update(letter.to for letter in stuck)

    def part(self, letters: Sequence[Letter], pushed: Mapping[Id, float]) -> tuple[list[Letter], list[Letter]]:
        """
        Those of a shard's letters that are sent now, and those that come next. A job that is to run after another one
        is not sent before what was pushed to that one earlier has arrived: else nothing of that seems to be there.

        Args:
            pushed: the place of the first push to each id that has not arrived, as far as was read.
        """
        now = list[Letter]()
        for place, letter in enumerate(letters):
            is_early = any(pushed.get(other, letter.place) < letter.place for other in letter.others)
            if is_early or len(now) == RECEIVED:
                return now, list(letters[place:])
            if letter.to not in self.stuck and self.stuck.isdisjoint(letter.others):
                now.append(letter)
            else:
                self.note((), [letter])
        return now, []

    def go_on(self) -> None:
        """Goes past what is stuck. Where nothing is, the first letters are now those that have not arrived."""
        if self.stuck:
            self._after = self._read_to


class Homes:
    """Where letters go: the shards of their queues, as far as they were asked for."""

    def __init__(self, caller: Caller, namespace: str) -> None:
        self._caller = caller
        self._namespace = namespace
        self._ways: dict[str, Ways] = {}
        self._losses = caller.losses

    def shard_of(self, letter: Letter) -> Shard:
        """The shard that a letter is for. Raises LowkiqError if its queue can't be written to."""
        if self._losses != self._caller.losses:  # a failover may have lost that a shard was moved, or a reshard
            self._losses = self._caller.losses
            self._ways.clear()
        if letter.queue not in self._ways:
            (found,) = opened(self._caller, self._namespace, {letter.queue: letter.shards_count}).values()
            if isinstance(found, Exception):
                raise found
            self._ways[letter.queue] = Ways(self._namespace, letter.queue, found)
        return self._ways[letter.queue].shard_of(letter.words[0])

    def sent_on(self, queue: str, prefix: str) -> None:
        """Notes that a shard was moved: its letters go on."""
        ways = self._ways.get(queue)  # another shard of it may have said so already
        if ways and not ways.sent_on(prefix):
            del self._ways[queue]


#: Letters by the outbox that they are in, and the shard that they are for.
Groups = dict[tuple[Outbox, Shard], list[Letter]]


def relay(caller: Caller, homes: Homes, outboxes: Sequence[Outbox]) -> Mapping[Outbox, Exception]:
    """
    Takes all letters along, of several shards at once.

    Returns:
        what was in the way, by outbox: the rest of its letters waits.
    """
    failed: dict[Outbox, Exception] = {}
    running = list(outboxes)
    while running:
        pages = dict(zip(running, caller.run_all([outbox.turn() for outbox in running]), strict=True))
        failed |= {outbox: page for outbox, page in pages.items() if isinstance(page, Exception)}
        failed |= _deliver(caller, homes, {box: page for box, page in pages.items() if not isinstance(page, Exception)})
        running = [outbox for outbox in running if outbox.has_more and not isinstance(pages[outbox], Exception)]
        for outbox in running:
            outbox.go_on()
    return failed


def ask_again(shard: Shard, node: str, epoch: str, place: bytes, seconds: float) -> Call[bytes]:
    """
    Writes letters that ask once more for some of what jobs of a shard wait for, if they have not asked for so many
    seconds, and longer if they have waited for long: for the case that somebody has not told them. Gives the place
    where to go on, b"0" at first and at the end.
    """
    words: list[Argument] = [node, epoch, shard.layout, place, ASKS_AFTER - seconds, PAGE]
    return Call("ask_again", [shard.prefix], words, bytes)


def _deliver(caller: Caller, homes: Homes, pages: Mapping[Outbox, Sequence[Letter]]) -> dict[Outbox, Exception]:
    """Has the letters of some pages be received, as far as nothing is in the way."""
    groups, failed = _by_shard(homes, pages)
    while groups:  # those of a shard one after the other: what is refused holds up what comes behind it
        for box, shard in [group for group in groups if not group[0].holds()]:
            failed[box] = LowkiqError("its lease ran out before they were sent")
            box.note((), groups.pop((box, shard)))
        groups, left = _part(groups)
        calls = [_receive(shard, letters, outbox.owner) for (outbox, shard), letters in groups.items()]
        for ((outbox, shard), letters), result in zip(groups.items(), caller.run_all(calls), strict=True):
            if not isinstance(result, Exception):
                outbox.note(letters, ())
                continue
            if isinstance(result, Moved):
                homes.sent_on(shard.queue, shard.prefix)
            failed[outbox] = result
            outbox.note((), letters + left.pop((outbox, shard), []))
        groups = left
    return failed


def _part(groups: Groups) -> tuple[Groups, Groups]:
    """The letters that are sent now, and those that come next."""
    pushed: dict[Outbox, dict[Id, float]] = {}
    for (outbox, _), letters in groups.items():
        of_box = pushed.setdefault(outbox, {})
        for letter in letters:
            if letter.kind == b"push":
                of_box[letter.to] = min(of_box.get(letter.to, letter.place), letter.place)
    now: Groups = {}
    left: Groups = {}
    for (outbox, shard), letters in groups.items():
        some, rest = outbox.part(letters, pushed[outbox])
        now |= {(outbox, shard): some} if some else {}
        left |= {(outbox, shard): rest} if rest else {}
    return now, left


def _by_shard(homes: Homes, pages: Mapping[Outbox, Sequence[Letter]]) -> tuple[Groups, dict[Outbox, Exception]]:
    """Letters by the shards that they are for; and what is in the way of others."""
    groups: Groups = {}
    failed: dict[Outbox, Exception] = {}
    for outbox, letters in pages.items():
        for letter in letters:
            if letter.to in outbox.stuck:
                continue
            try:
                groups.setdefault((outbox, homes.shard_of(letter)), []).append(letter)
            except LowkiqError as error:
                failed[outbox] = error
                outbox.note((), [letter])
    return groups, failed


def _receive(shard: Shard, letters: Sequence[Letter], owner: tuple[str, str] = ("", "0")) -> Call[int]:
    """Has a shard take letters in that are of one outbox: its shard, and the epoch of whoever owns that."""
    arguments: list[Argument] = [shard.layout, *owner, next(_numbers)]
    for letter in letters:
        words = [letter.name, letter.kind, *letter.words]
        arguments += words + [b""] * (_RECEIVED - len(words))
    return Call("receive", [shard.prefix], arguments, int)
