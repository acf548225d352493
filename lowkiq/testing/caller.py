"""FakeCaller: what queries, actions and metrics ask Redis, answered by the models of a fake."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from lowkiq.after import OPEN, part_name
from lowkiq.app import Lowkiq
from lowkiq.errors import unknown_queue
from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import SHARDS_A_CALL, Argument, Call, Caller
from lowkiq.queue.unreadable import Met
from lowkiq.testing.clock import Clock
from lowkiq.testing.model.shard_state import SECOND
from lowkiq.testing.queues import FakeQueue, text_of
from lowkiq.testing.shard_view import ShardView, no_redis
from lowkiq.transport.server import Command, Replicas
from lowkiq.worker import Worker

#: Script → how many words it has before the ids.
DEEDS: Final = {
    "bury": 2, "cancel": 0, "drop": 1, "hold": 1, "let_go": 0, "pause": 1, "perform_now": 0, "resume": 0, "revive": 1,
    "stop_waiting": 0, "unblock": 1,
}  # fmt: skip
#: The prefix of a shard's keys, with its queue and number.
_PREFIX: Final = re.compile(r".*\{([^}]*):([0-9]+)\}:")


class FakeCaller(Caller):
    """
    Args:
        queues: those that are open, by name.
        open: gives the queue of a worker of the application.
        acted: is called when somebody has acted on jobs.
    """

    def __init__(
        self,
        app: Lowkiq,
        clock: Clock,
        queues: Mapping[str, FakeQueue],
        open: Callable[[type[Worker[Any]]], FakeQueue],
        acted: Callable[[], None],
    ) -> None:
        # There is no client, and so nothing of a Caller's own.
        self.met, self.is_spread, self.shards_a_call = Met(), False, SHARDS_A_CALL
        self.command = self._command
        self._namespace, self._workers, self._clock = app.namespace, app.workers, clock
        self._queues, self._open, self._acted = queues, open, acted

    def run_all(self, calls: Sequence[Call[Any]], replicas: Replicas | None = None) -> list[Any]:  # noqa: ARG002
        """Answers calls of scripts."""
        if any(call.script in DEEDS for call in calls):
            self._clock.tick()
        return [call.parse(self._reply(call)) for call in calls]

    def commands(self, commands: Sequence[Command]) -> list[Any]:
        """Answers commands that read."""
        return [self._command(*words) for words in commands]

    def read(self, commands: Sequence[Command], otherwise: Any) -> list[Any]:  # noqa: ARG002 (all can be read)
        """Does the same."""
        return self.commands(commands)

    def close(self) -> None:
        """Has no connections to close."""

    def __getattr__(self, name: str) -> NoReturn:
        raise no_redis(name)

    # ── scripts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _reply(self, call: Call[Any]) -> Any:
        words = [_bytes(word) for word in call.arguments]
        if call.script in DEEDS:
            return self._act(call.keys[0], call.script, *words)
        scripts: dict[str, Callable[..., Any]] = {
            "fetch": self._fetch, "heads": self._heads, "lengths": self._lengths, "newer": self._newer,
            "note_incidents": lambda *_: 0, "stats": self._stats,  # nobody looks at incidents
        }  # fmt: skip
        if call.script not in scripts:
            raise no_redis(call.script)
        return scripts[call.script](call.keys, *words)

    def _act(self, prefix: str, script: str, _: bytes, *words: bytes) -> Any:
        queue, index = self._find(prefix)
        count = DEEDS[script]
        ids = [id.decode("utf-8", KEPT_BYTES) for id in words[count:]]
        reply = queue.act(index, script, words[:count], ids)
        self._acted()
        return reply

    def _fetch(self, prefixes: Sequence[str], where: bytes, most: bytes, cut: bytes, *ids: bytes) -> list[Any]:
        with self._shard(prefixes[0]) as shard:
            return [shard.fetch(where.decode(), id, int(most), int(cut) if cut else None) for id in ids]

    def _heads(self, prefixes: Sequence[str], index: bytes, command: bytes, *bounds: bytes) -> list[bytes]:
        ranges = zip(prefixes, bounds[::3], bounds[1::3], bounds[2::3], strict=True)
        pages = [
            self._command(command, P + index.decode(), first, last, "WITHSCORES", "LIMIT", skip, 1)
            for P, first, last, skip in ranges
        ]
        return [page[0][1] if page else b"" for page in pages]

    def _lengths(self, prefixes: Sequence[str], command: bytes, index: bytes, *bounds: bytes) -> list[int]:
        return [self._command(command, P + index.decode(), *bounds) for P in prefixes]

    def _newer(self, prefixes: Sequence[str], *ids: bytes) -> list[bytes]:
        with self._shard(prefixes[0]) as shard:
            return [id for id in ids if shard.is_behind_newer(id)]

    def _stats(self, prefixes: Sequence[str]) -> list[Any]:
        reply: list[Any] = [text_of(self._clock.now)]
        for prefix in prefixes:
            with self._shard(prefix) as shard:
                reply.append(shard.stats())
        return reply

    # ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _command(self, *command: Argument) -> Any:
        name, *words = map(_bytes, command)
        if name == b"TIME":
            return divmod(self._clock.now, SECOND)
        if name not in _READS or not words:
            raise no_redis(name.decode())
        key, *words = words
        return _READS[name](self._held(key.decode("utf-8", KEPT_BYTES)), *words)

    def _held(self, key: str) -> Mapping[bytes, Any]:
        if key == keys.queues(self._namespace):
            workers = [*self._workers.items()]
            return {name.encode(): keys.Layout.first(worker.shards_count).text.encode() for name, worker in workers}
        prefix, end, name = key.partition("}:")
        if name == "waiters":
            return self._waiters(self._find(prefix + end)[0])
        with self._shard(prefix + end) as shard:
            return shard.held(name)

    def _waiters(self, of: FakeQueue) -> Mapping[bytes, int]:
        """The ids of a queue for which others wait."""
        waits = [waiting for queue in [*self._queues.values()] for waiting in [*queue.waits.values()]]
        names = [part_name(name) for waiting in waits for name in [*waiting.names] if not name.startswith(OPEN)]
        return {
            id.encode("utf-8", KEPT_BYTES): 0 for queue, id in names if queue == of.worker.queue_name and of.has(id)
        }

    @contextmanager
    def _shard(self, prefix: str) -> Iterator[ShardView]:
        queue, index = self._find(prefix)
        with queue.locked(index) as model:
            yield ShardView(queue, model)

    def _find(self, prefix: str) -> tuple[FakeQueue, int]:
        """The queue of a shard, and the shard's number. Raises LowkiqError: there is none such."""
        match = _PREFIX.fullmatch(prefix)
        if match is None:
            raise no_redis(prefix)
        name, index = match[1], int(match[2])
        if name not in self._workers or index >= self._workers[name].shards_count:
            raise unknown_queue(name, self._workers)
        return self._open(self._workers[name]), index


def _bytes(word: Argument) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode("utf-8", KEPT_BYTES)


# ── commands, of what a key holds: members with their scores, or fields with their values ─────────────────────────────

Held = Mapping[bytes, Any]
#: Members and their scores; or only members.
Page = list[Any]


def _in_order(held: Held) -> Page:
    return sorted(((member, score) for member, score in held.items()), key=lambda row: (row[1], row[0]))


def _page(rows: Page, words: Sequence[bytes]) -> Page:
    """What the words of a range leave of it."""
    if b"LIMIT" in words:
        skip, most = (int(word) for word in words[words.index(b"LIMIT") + 1 :][:2])
        rows = rows[skip : skip + most]
    return [(member, b"%r" % score) for member, score in rows] if b"WITHSCORES" in words else [row[0] for row in rows]


def _range(held: Held, first: bytes, last: bytes, *words: bytes, reverse: bool = False) -> Page:
    rows = _in_order(held)
    if reverse:
        rows.reverse()
    return _page(rows[int(first) :][: int(last) - int(first) + 1], words)


def _within(held: Held, low: bytes, high: bytes) -> Page:
    (lowest, above), (highest, below) = ((float(edge.lstrip(b"(")), edge.startswith(b"(")) for edge in (low, high))
    return [
        row
        for row in _in_order(held)
        if lowest <= row[1] <= highest and not (above and row[1] == lowest) and not (below and row[1] == highest)
    ]


def _scan(held: Held, *words: bytes) -> Page:
    is_wanted = _glob(words[words.index(b"MATCH") + 1]).fullmatch if b"MATCH" in words else None
    return [(member, b"%r" % score) for member, score in held.items() if is_wanted is None or is_wanted(member)]


#: A part of a glob as Redis has them: an escaped character, a class, or any other character.
_PART: Final = re.compile(rb"\\(.)|\[(\^?)((?:\\.|[^\]\\])*)\]?|(.)", re.DOTALL)


def _glob(pattern: bytes) -> re.Pattern[bytes]:
    def part(match: re.Match[bytes]) -> bytes:
        escaped, negated, members, char = match.groups()
        if members is None:
            return {b"*": b".*", b"?": b"."}.get(char, re.escape(escaped or char))
        inside = re.sub(
            rb"\\?(.)", lambda one: one[0] if one[0] == b"-" else re.escape(one[1]), members, flags=re.DOTALL
        )
        return b"[" + negated + inside + b"]" if inside else (b"." if negated else b"(?!)")

    return re.compile(_PART.sub(part, pattern), re.DOTALL)


_READS: Final[Mapping[bytes, Callable[..., Any]]] = {
    **dict.fromkeys((b"HLEN", b"LLEN", b"SCARD", b"ZCARD"), len),
    **dict.fromkeys((b"HGET", b"ZSCORE"), lambda held, member: held.get(member)),
    **dict.fromkeys((b"HMGET", b"ZMSCORE"), lambda held, *members: [held.get(member) for member in members]),
    b"HSCAN": lambda held, *_: (0, held),
    b"SSCAN": lambda held, _, *words: (0, [member for member, _ in _scan(held, *words)]),
    b"ZSCAN": lambda held, _, *words: (0, _scan(held, *words)),
    b"ZCOUNT": lambda held, low, high: len(_within(held, low, high)),
    b"ZRANDMEMBER": lambda held, most: random.sample(list(held), min(int(most), len(held))),
    b"ZRANGE": _range,
    b"ZREVRANGE": lambda held, *words: _range(held, *words, reverse=True),
    b"ZRANGEBYSCORE": lambda held, low, high, *words: _page(_within(held, low, high), words),
    b"ZREVRANGEBYSCORE": lambda held, high, low, *words: _page(_within(held, low, high)[::-1], words),
}
