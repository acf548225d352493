"""Connections of the server: how long one may keep it waiting, and how many are answered at a time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds from a connection's beginning, or the first byte of a later request, to the end of the headers.
HEADERS_WITHIN: Final = 10.0
#: Seconds for a body, where nobody waits for it: who does refuses it before that (guard.BODY_TIMEOUT).
BODY_WITHIN: Final = 40.0
#: Seconds in which nothing is read of an answer.
READ_WITHIN: Final = 30.0
#: Connections that keep the server waiting, for headers, a body, or for reading what it has sent. For one more the
#: oldest is cut off, which by then has had the time it needs. Fewer than MOST_REQUESTS: others are answered meanwhile.
MOST_WAITED_FOR: Final = 300
#: Requests that are answered at a time: far above a hundred dashboards, far below the usual limit of files.
MOST_REQUESTS: Final = 500
#: Requests that are answered beyond it.
PROBES: Final = frozenset({"/healthz", "/readyz"})

_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})


class Connection(H11Protocol):
    """
    A connection that is cut off when it keeps the server waiting for too long, so that without credentials nobody can
    have all of its places. `waiting` is shared by all connections of a server, the oldest first.
    """

    def __init__(self, waiting: dict[Connection, asyncio.TimerHandle], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = waiting
        #: Seconds that what is waited for may take; None: nothing is.
        self._within: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # What the system does not take is what somebody does not read; then `pause_writing` is called.
        transport.set_write_buffer_limits(0)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()  # the next request may have come with the last one, or a part of it

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Sees what is waited for: as long as it is the same, its time runs on."""
        within = self._time()
        if within != self._within:
            self._wait(within)

    def _time(self) -> float | None:
        if self.flow.write_paused:
            return READ_WITHIN
        if self.timeout_keep_alive_task:  # nothing has come since the last answer, and uvicorn closes it
            return None
        return {h11.IDLE: HEADERS_WITHIN, h11.SEND_BODY: BODY_WITHIN}.get(self.conn.their_state)

    def _wait(self, within: float | None) -> None:
        if timer := self._waiting.pop(self, None):
            timer.cancel()
        self._within = within
        if within is not None:
            if len(self._waiting) >= MOST_WAITED_FOR:
                next(iter(self._waiting))._cut_off()
            self._waiting[self] = self.loop.call_later(within, self._cut_off)

    def _cut_off(self) -> None:
        self._wait(None)
        self.transport.abort()  # to close it would wait for its reading what was sent


class Limit:
    """
    Middleware that answers so many requests at a time; probes beyond it, and others are told to come back. A request
    that tells its length in both ways ends its connection: a proxy in front may see another request behind it than we.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_REQUESTS) -> None:
        self.app = app
        self._most = most
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _LENGTHS:
            told = "content-length and transfer-encoding are both given: send one of them\n"
            await PlainTextResponse(told, 400, {"Connection": "close"})(scope, receive, send)
            return
        if scope["type"] == "http" and self._answering >= self._most and scope["path"] not in PROBES:
            response = PlainTextResponse("too many requests at a time\n", 503, {"Retry-After": "2"})
            await response(scope, receive, send)
            return
        self._answering += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._answering -= 1
