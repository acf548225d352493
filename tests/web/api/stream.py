"""Stream: a request to an ASGI application whose response is read while it comes."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, Self

from starlette.types import ASGIApp, Message

#: Seconds to wait for what has to come.
PATIENCE = 30.0


class Event(NamedTuple):
    """A server-sent event, or a comment, which has no name."""

    name: str
    data: Any
    id: int | None
    raw: bytes


class Stream:
    """
    A client of events. Leaves when its block ends.

    Args:
        reads: False: a client that takes nothing off the line.
    """

    def __init__(self, web: ASGIApp, *, method: str = "GET", reads: bool = True, **scope: Any) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_ended = asyncio.Event()
        self._web = web
        self._reads = reads
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._begun, self._gone = asyncio.Event(), asyncio.Event()
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": "/api/v1/events",
            "raw_path": b"/api/v1/events",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 80),
        } | scope

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        async with asyncio.timeout(PATIENCE):
            await self._begun.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()
        async with asyncio.timeout(PATIENCE):
            await self._task

    def leave(self) -> None:
        """As a browser does when its tab is closed."""
        self._gone.set()

    async def event(self, name: str | None = None) -> Event:
        """The next event, or the next of that name; "" is a comment."""
        async with asyncio.timeout(PATIENCE):
            while True:
                event = _parse(await self._chunks.get())
                if name is None or event.name == name:
                    return event

    async def _run(self) -> None:
        try:
            await self._web(self._scope, self._receive, self._send)
        finally:
            self.has_ended.set()

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self._begun.set()
            return
        if not self._reads:
            await asyncio.Event().wait()
        for part in message["body"].split(b"\n\n"):
            if part:
                self._chunks.put_nowait(part)


def _parse(raw: bytes) -> Event:
    fields = dict(line.split(": ", 1) for line in raw.decode().splitlines())
    data = json.loads(fields["data"]) if "data" in fields else None
    return Event(fields.get("event", ""), data, int(fields["id"]) if "id" in fields else None, raw)
