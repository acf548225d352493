"""Connections of the server: how long one may take to say what it wants, and how many are answered at a time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds from a connection's beginning, or the first byte of a later request, to the end of the headers.
HEADERS_WITHIN: Final = 10.0
#: Connections that are at their headers; for one more the oldest is closed, which by then has had the time it needs.
MOST_UNFINISHED: Final = 300
#: Requests that are answered at a time: far above a hundred dashboards, far below the usual limit of files.
MOST_REQUESTS: Final = 500
#: Requests that are answered beyond it.
PROBES: Final = frozenset({"/healthz", "/readyz"})


class Connection(H11Protocol):
    """A connection that is closed unless its headers come in time. `unfinished` is shared by all of a server."""

    def __init__(self, unfinished: dict[Connection, asyncio.TimerHandle], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = unfinished

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._note()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()
        super().connection_lost(exc)

    def _note(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._finish()
        elif self not in self._unfinished:
            if len(self._unfinished) >= MOST_UNFINISHED:
                next(iter(self._unfinished))._close()
            self._unfinished[self] = self.loop.call_later(HEADERS_WITHIN, self._close)

    def _finish(self) -> None:
        if timer := self._unfinished.pop(self, None):
            timer.cancel()

    def _close(self) -> None:
        self._finish()
        self.transport.close()


class Limit:
    """Middleware that answers so many requests at a time; probes beyond it, and others are told to come back."""

    def __init__(self, app: ASGIApp, most: int = MOST_REQUESTS) -> None:
        self.app = app
        self._most = most
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._answering >= self._most and scope["path"] not in PROBES:
            response = PlainTextResponse("too many requests at a time\n", 503, {"Retry-After": "2"})
            await response(scope, receive, send)
            return
        self._answering += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._answering -= 1
