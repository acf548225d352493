"""
Bad weather between clients and Redis: a process that passes bytes on, or delays them, loses replies or requests,
delivers requests late, or resets connections.

Usage: python -m tests.chaos.proxy PORT SOCKET; commands are lines of JSON on stdin: [weather, seconds].
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

#: Seconds that a delayed chunk waits.
DELAY = 0.15


class Link:
    """One client's connection and the one to Redis that belongs to it."""

    def __init__(self, weather: Weather, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._weather = weather
        self.client, self.server = client, server
        #: It has lost bytes, so what comes after them would be misread.
        self.is_spoilt = False

    async def requests(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                match self._weather.now:
                    case "drop requests":
                        self.is_spoilt = True
                    case "late":
                        await self._deliver_late(data)
                        return
                    case _:
                        await self._pass_on(data, self.server)
        self.close()

    async def replies(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._weather.now == "drop replies":
                    self.is_spoilt = True
                else:
                    await self._pass_on(data, self.client)
        self.close()

    async def _pass_on(self, data: bytes, to: asyncio.StreamWriter) -> None:
        if self._weather.now == "delay":
            await asyncio.sleep(DELAY)
        if not self.is_spoilt and not to.is_closing():
            to.write(data)
            await to.drain()

    async def _deliver_late(self, data: bytes) -> None:
        """The client thinks the connection dead; Redis gets what was sent after all."""
        self.client.close()
        await self._weather.is_over.wait()
        with contextlib.suppress(OSError):
            self.server.write(data)
            await self.server.drain()
            await asyncio.sleep(0.1)
        self.server.close()

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Weather:
    """State of all links, until it is over."""

    def __init__(self) -> None:
        self.now = "fair"
        self.links: set[Link] = set()
        self.is_over = asyncio.Event()

    async def become(self, what: str, seconds: float) -> None:
        if what == "reset":
            for link in self.links:
                link.client.transport.abort()
                link.server.transport.abort()
            return
        self.now = what
        self.is_over.clear()
        await asyncio.sleep(seconds)
        self.now = "fair"
        self.is_over.set()
        for link in list(self.links):
            if link.is_spoilt:
                link.close()


async def serve(port: int, socket: str) -> None:
    """Serves until stdin ends: until whoever has started it ends."""
    weather = Weather()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_redis, to_redis = await asyncio.open_unix_connection(socket)
        except OSError:
            writer.close()
            return
        link = Link(weather, writer, to_redis)
        weather.links.add(link)
        try:
            await asyncio.gather(link.requests(reader), link.replies(from_redis))
        finally:
            weather.links.discard(link)

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)
    while command := await commands.readline():
        await weather.become(*json.loads(command))
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
