"""Events: what happens to jobs, as it happens, for whoever listens; and nothing at all while nobody does."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import deque
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.jobs.tracking import parse_note
from lowkiq.admin.metrics import read_layouts
from lowkiq.admin.publishing import Event, channel_of, mark_of_database
from lowkiq.errors import short, unknown_option
from lowkiq.job import KEPT_BYTES, listed_ids
from lowkiq.queue.call import Call, Caller, chunked, raise_first
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import shards_of
from lowkiq.transport.subscription import Message, Subscription

#: Kinds of events. "gap": some may have been missed, as while Redis was away.
KINDS: Final = (
    "pushed", "started", "done", "failed", "snoozed", "limited", "buried", "revived", "deleted", "cancelled", "held",
    "let_go", "released", "restored", "blocked", "retried", "skipped", "discarded", "superseded", "lease_lost", "death",
    "settings_changed", "gap",
)  # fmt: skip
#: Seconds until a shard forgets that somebody listens, and between two renewals: two may be lost.
LAPSE: Final = 30
RENEWAL: Final = 10.0
#: Seconds that one read waits, and between two tries to connect.
READ: Final = 0.5
PAUSE: Final = 1.0
#: Bytes of a message that are read.
LONGEST: Final = 8_192
_ID: Final = re.compile(rb"([0-9]{1,6}) ")


class Events:
    """
    An iterator over events from its making on; it ends when it is closed, by whichever thread. What nobody reads in
    time is lost, as Redis keeps no more than its output buffer: a `gap` says so.
    """

    def __init__(
        self,
        caller: Caller,
        namespace: str,
        queues: Mapping[str, int | Layout],
        *,
        ids: Collection[str | int] | None = None,
        kinds: Collection[str] | None = None,
    ) -> None:
        if isinstance(kinds, str):
            raise TypeError(f"kinds must be a list, not {short(kinds)}: write kinds=[{short(kinds)}]")
        for kind in kinds or ():
            if kind not in KINDS:
                raise unknown_option("kind of event", kind, KINDS)
        self._caller, self._queues = caller, dict(queues)
        self._channels = {channel_of(caller, namespace, queue).encode(): queue for queue in queues}
        self._namespace, self._layouts = namespace, dict(queues)
        self._ids = None if ids is None else set(map(str, listed_ids(ids)))
        self._kinds = None if kinds is None else {*kinds, "gap"}
        self._subscription: Subscription | None = None
        self._heard_of: set[bytes] = set()
        self._ready: deque[Event] = deque()
        self._renew_at = self._open_at = 0.0
        self._has_gap = False
        self._closed, self._reading = threading.Event(), threading.Lock()
        self._open()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        while not self._closed.is_set():
            event = self.next(RENEWAL)
            if event is not None:
                return event
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed.is_set():
            event = await asyncio.to_thread(self.next, READ)
            if event is not None:
                return event
        raise StopAsyncIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def next(self, seconds: float) -> Event | None:
        """The next event; None if there is none within that time, or it is closed."""
        with self._reading:
            event = self._next(seconds)
        if self._closed.is_set():
            self._end()
        return event

    def close(self) -> None:
        """Ends it. A shard forgets it within half a minute."""
        self._closed.set()
        self._end()

    def _next(self, seconds: float) -> Event | None:
        until = clock.monotonic() + seconds
        while not self._closed.is_set():
            if self._ready:
                return self._ready.popleft()
            left = until - clock.monotonic()
            if left <= 0:
                return None
            self._read(min(left, READ))
        return None

    def _end(self) -> None:
        """Closes the connection, unless somebody reads, who does it then."""
        if self._reading.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._reading.release()

    def _open(self) -> None:
        self._open_at = clock.monotonic() + PAUSE
        self._heard_of.clear()
        subscription = self._subscription = Subscription(self._caller.client, self._caller.leave, *self._channels)
        # Once Redis listens: by another connection it may hear earlier of what comes later.
        while len(self._heard_of) < len(self._channels) and not self._closed.is_set():
            self._hear(subscription.get(READ))
        self._renew()

    def _renew(self) -> None:
        known = read_layouts(self._caller, self._namespace)  # they may have been resharded
        self._layouts = {queue: known.get(queue, layout) for queue, layout in self._layouts.items()}
        mark = mark_of_database(self._caller)
        calls = [
            Call("watch", [shard.prefix for shard in some], [LAPSE, mark], lambda _: None)
            for some in chunked(shards_of(self._namespace, self._layouts), self._caller.shards_a_call)
        ]
        raise_first(self._caller.run_all(calls))
        self._renew_at = clock.monotonic() + RENEWAL

    def _read(self, seconds: float) -> None:
        try:
            if self._subscription is None:
                self._open()
                self._has_gap = True
            if self._subscription and clock.monotonic() >= self._renew_at:
                self._subscription.ask()  # what it is answered while shards are told, which waits where nobody answers
                if clock.monotonic() >= self._renew_at + LAPSE - RENEWAL:
                    self._tell_of_a_gap()  # nobody has read for so long that shards have forgotten it
                self._renew()
            message = self._subscription.get(seconds) if self._subscription else None
            self._hear(message)
            if self._has_gap:
                self._has_gap = False
                self._tell_of_a_gap()
                self._renew()
        except (RedisError, OSError):
            self._disconnect()
            self._closed.wait(max(0.0, self._open_at - clock.monotonic()))
            return
        if message is not None and message["type"] == "message":
            event = self._parse(message["channel"], message["data"])
            if event is not None and self._is_wanted(event):
                self._ready.append(event)

    def _hear(self, message: Message | None) -> None:
        """Learns from a second word of a channel's that the client has by itself connected again."""
        if message is not None and message["type"] == "subscribe":
            self._has_gap = self._has_gap or message["channel"] in self._heard_of
            self._heard_of.add(message["channel"])

    def _tell_of_a_gap(self) -> None:
        at = clock.real()
        with contextlib.suppress(RedisError):
            seconds, micros = self._caller.command("TIME")
            at = seconds + micros / 1e6
        self._ready += [Event(at, "gap", queue, detail="some may be missing") for queue in self._queues]

    def _disconnect(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _is_wanted(self, event: Event) -> bool:
        is_of_id = self._ids is None or not event.id or event.id in self._ids
        return is_of_id and (self._kinds is None or event.kind in self._kinds)

    def _parse(self, channel: bytes, data: bytes) -> Event | None:
        """An event; None for what is none: anybody may publish."""
        queue, match = self._channels.get(channel), _ID.match(data[:LONGEST])
        if queue is None or match is None:
            return None
        end = match.end() + int(match[1])
        note = parse_note(data[end:LONGEST])
        if note is None:
            return None
        id = data[match.end() : end].decode("utf-8", KEPT_BYTES)
        return Event(note.at, note.kind, queue, id, note.node, note.detail)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._disconnect()
