"""
Bad weather between clients and Redis: a process, or a thread, that passes bytes on, or does with them what its weather
says.

Usage: python -m tests.chaos.world.proxy PORT SOCKET; commands are lines of JSON on stdin: [weather, seconds].
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys

from tests.support import HOST

#: Seconds that a delayed chunk waits.
DELAY = 0.15
#: Bytes of replies after which a connection is cut.
CUTS = (0, 1, 3, 7, 30, 120, 400)
#: Bytes of a chunk that go one by one: more than any header has.
ONE_BY_ONE = 200


class Link:
    """One client's connection and the one to Redis that belongs to it."""

    def __init__(self, weather: Weather, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._weather = weather
        self.client, self.server = client, server
        #: It has lost bytes, so what comes after them would be misread.
        self.is_spoilt = False
        #: Whatever is sent goes nowhere, and nobody is told.
        self.is_forgotten = False
        self._replied, self._cut_after = 0, random.choice(CUTS)

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
                match self._weather.now:
                    case "drop replies":
                        self.is_spoilt = True
                    case "late replies":
                        await self._weather.wait(2.5)  # longer than a first try, or people, wait
                    case "reset" | "half-close" if self._replied + len(data) > self._cut_after:
                        await self._pass_on(data[: max(0, self._cut_after - self._replied)], self.client)
                        self._cut()
                        continue
                self._replied += len(data)
                await self._pass_on(data, self.client)
        if not self.is_forgotten:
            self.close()

    async def _pass_on(self, data: bytes, to: asyncio.StreamWriter) -> None:
        match self._weather.now:
            case "delay":
                await asyncio.sleep(DELAY)
            case "silence":
                await self._weather.wait()
            case "hole":
                self.is_forgotten = True
            case "single bytes":
                for number in range(min(ONE_BY_ONE, len(data))):
                    await self._send(data[number : number + 1], to)
                data = data[ONE_BY_ONE:]
        await self._send(data, to)

    async def _send(self, data: bytes, to: asyncio.StreamWriter) -> None:
        if not self.is_spoilt and not self.is_forgotten and not to.is_closing():
            to.write(data)
            await to.drain()

    def _cut(self) -> None:
        """Says to the client that there is no more to come; or the end of all, in a way that no TCP stack overhears."""
        self.is_forgotten = True
        if self._weather.now == "half-close":
            self.client.write_eof()
        else:
            self.reset()

    def reset(self) -> None:
        for end in (self.client, self.server):
            made: socket.socket = end.get_extra_info("socket")
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()

    async def _deliver_late(self, data: bytes) -> None:
        """The client thinks the connection dead; Redis gets what was sent after all."""
        self.client.close()
        await self._weather.wait()
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
        self._is_over = asyncio.Event()
        self._servers: list[asyncio.Server] = []

    async def wait(self, seconds: float | None = None) -> None:
        """Until it is over, or for so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), seconds)

    async def become(self, what: str, seconds: float) -> None:
        """It is so for that long. What is reset, or forgotten, are the connections of the beginning."""
        for link in list(self.links):
            if what == "reset":
                link.reset()
            link.is_forgotten |= what in {"forget", "hole"}
        self.now = what
        self._is_over.clear()
        await asyncio.sleep(seconds)
        self.now = "fair"
        self._is_over.set()
        for link in list(self.links):
            if link.is_spoilt:
                link.close()

    async def serve(self, port: int, to: str | int) -> int:
        """Passes what comes to a port, 0 for any, on to a socket of Unix or a port. Returns its own."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                if isinstance(to, int):
                    from_redis, to_redis = await asyncio.open_connection(HOST, to)
                else:
                    from_redis, to_redis = await asyncio.open_unix_connection(to)
            except OSError:
                writer.close()
                return
            link = Link(self, writer, to_redis)
            self.links.add(link)
            try:
                await asyncio.gather(link.requests(reader), link.replies(from_redis))
            finally:
                self.links.discard(link)

        server = await asyncio.start_server(accept, HOST, port)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def end(self) -> None:
        """Closes all."""
        self._is_over.set()
        for server in self._servers:
            server.close()
        for link in list(self.links):
            link.reset()


async def serve(port: int, to: str) -> None:
    """Serves until stdin ends: until whoever has started it ends."""
    weather = Weather()
    await weather.serve(port, to)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)
    while command := await commands.readline():
        await weather.become(*json.loads(command))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
