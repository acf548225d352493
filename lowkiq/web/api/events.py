"""
Events: live numbers as server-sent events, from the one poll that all dashboards share.

A stream belongs to its request and ends with it: nothing here outlives one, as mounted applications have no lifespan.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Final

import anyio
import msgspec
import redis
from msgspec import Meta
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from lowkiq import clock
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import Call
from lowkiq.web.api.types import Failure
from lowkiq.web.snapshot import QueueRow, Rates, Snapshot, Snapshots

MEDIA_TYPE: Final = "text/event-stream"
#: Streams of one process: each costs a connection and a task.
MAX_STREAMS: Final = 300
#: Queues in a tick: about 100 KB.
MAX_QUEUES: Final = 200
#: Seconds of silence after which a comment tells proxies that the stream lives: they give up after 30 or 60.
KEEP_ALIVE: Final = 15.0
#: Seconds after which a stream ends and the browser comes again: whoever was signed out meanwhile is then refused.
LIFETIME: Final = 600.0
#: Seconds that a client may leave an event unread. One that has gone unnoticed (a WSGI server tells nothing) frees its
#: place after these.
SEND_TIMEOUT: Final = 30.0
#: Milliseconds after which a browser connects again, and seconds after which one should that was turned away.
RETRY: Final = b"retry: 2000\n\n"
RETRY_AFTER: Final = "10"
#: Characters of an error.
ERROR_CHARS: Final = 500

_KEEP_ALIVE: Final = b": still here\n\n"


class NodesTick(msgspec.Struct, frozen=True):
    """Counts of nodes, and of what is wrong with them."""

    count: int
    late: int
    missing: int
    doubled: int
    unowned: int
    is_well: bool


class ServerTick(msgspec.Struct, frozen=True):
    """The numbers of Redis that change all the time."""

    memory: int
    max_memory: int
    clients: int


class Tick(msgspec.Struct, frozen=True):
    """The data of a tick: all that a dashboard needs to stay up to date."""

    number: Annotated[int, Meta(description="Rises with each look at Redis; also the event's id.")]
    at: Annotated[float, Meta(description="Unix time by Redis's clock.")]
    total: QueueMetrics
    total_rates: Annotated[Rates, Meta(description="A second.")]
    queues: Annotated[list[QueueRow], Meta(description="All, or those with the most lag and jobs.")]
    queues_left_out: int
    nodes: NodesTick
    server: ServerTick


@dataclass
class Streams:
    """The open streams of one view, and the limits that they have in common."""

    #: Streams at a time.
    most: int = MAX_STREAMS
    keep_alive: float = KEEP_ALIVE
    lifetime: float = LIFETIME
    send_timeout: float = SEND_TIMEOUT
    open: int = field(default=0, init=False)
    #: The number of the last tick, and its bytes.
    _encoded: tuple[int, bytes] = field(default=(-1, b""), init=False)

    async def respond(self, call: Call) -> Response:
        """A stream for a request."""
        if self.open >= self.most:
            message = f"{self.open:,} streams are open here, more are not served: try again later"
            raise Rejected(503, message, {"Retry-After": RETRY_AFTER})
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if call.request.method == "HEAD":
            return Response(headers=headers, media_type=MEDIA_TYPE)
        return EventStream(self, self.events(call.view.snapshots, call.request.scope), headers)

    async def events(self, snapshots: Snapshots, scope: Scope) -> AsyncIterator[bytes]:
        """Events for one client: a tick when there is news, down and up, and a comment now and then."""
        yield RETRY
        ends_at = clock.monotonic() + self.lifetime
        sent_at, sent, is_down = clock.monotonic(), -1, False
        while True:
            news = b""
            try:
                snapshot = await snapshots.get()
            except redis.RedisError as error:
                if not is_down:
                    news, is_down = _down(error), True
            else:
                if is_down:
                    news, is_down = _event("up", b"{}"), False
                if snapshot.number != sent:
                    news, sent = news + self._tick(snapshot), snapshot.number
            now = clock.monotonic()
            if news or now - sent_at >= self.keep_alive:
                yield news or _KEEP_ALIVE
                sent_at = clock.monotonic()
            # Under a WSGI server a stream would hold a thread, and none would tell when the client has left: there
            # a stream is one event, and the browser comes again after `retry`.
            if "wsgi_environ" in scope or now >= ends_at:
                return
            await anyio.sleep(snapshots.interval)

    def _tick(self, snapshot: Snapshot) -> bytes:
        """Encodes a tick once for all streams."""
        if self._encoded[0] != snapshot.number:
            data = msgspec.json.encode(tick(snapshot))
            self._encoded = snapshot.number, _event("tick", data, snapshot.number)
        return self._encoded[1]


class EventStream(StreamingResponse):
    """A stream that holds its place until its client leaves or stops reading, or its lifetime ends."""

    def __init__(self, streams: Streams, events: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        super().__init__(events, headers=headers, media_type=MEDIA_TYPE)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (as ASGI calls it)
        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(self._streams.send_timeout):
                await send(message)

        # Starlette listens for the client's end only where the server's `send` does not tell of it; but between two
        # events nothing is sent.
        async def listen() -> None:
            await self.listen_for_disconnect(receive)
            tasks.cancel_scope.cancel()

        self._streams.open += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                with suppress(OSError):  # the client is lost: TimeoutError is one as well
                    await self.stream_response(send_in_time)
                tasks.cancel_scope.cancel()
        finally:
            self._streams.open -= 1


def tick(snapshot: Snapshot) -> Tick:
    """The data of a snapshot for dashboards."""
    metrics = snapshot.queues
    shown = heapq.nlargest(MAX_QUEUES, metrics, key=lambda queue: (metrics[queue].lag, metrics[queue].length))
    nodes = snapshot.nodes
    return Tick(
        number=snapshot.number,
        at=snapshot.at,
        total=snapshot.total,
        total_rates=snapshot.total_rate,
        queues=[snapshot.row(queue) for queue in sorted(shown)],
        queues_left_out=len(metrics) - len(shown),
        nodes=NodesTick(
            count=len(nodes.nodes),
            late=len(nodes.late),
            missing=len(nodes.missing),
            doubled=len(nodes.doubled),
            unowned=len(nodes.unowned),
            is_well=nodes.is_well,
        ),
        server=ServerTick(snapshot.server.memory, snapshot.server.max_memory, snapshot.server.clients),
    )


def _down(error: redis.RedisError) -> bytes:
    return _event("down", msgspec.json.encode(Failure(f"Redis does not answer: {error}"[:ERROR_CHARS])))


def _event(name: str, data: bytes, number: int | None = None) -> bytes:
    # JSON has no line breaks outside of its escapes, so that the data is one line.
    id = f"id: {number}\n" if number is not None else ""
    return f"event: {name}\n{id}data: ".encode() + data + b"\n\n"
