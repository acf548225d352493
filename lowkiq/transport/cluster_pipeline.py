"""ServerPipeline: commands on their way to one server of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, Self

import redis
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from lowkiq import clock
from lowkiq.transport.patience import sending
from lowkiq.transport.server import SCRIPTS, Argument, Command, Replicas, judged, wait_command

#: Commands that name no key, and so may go anywhere.
KEYLESS: Final = frozenset({"TIME", "PING", "INFO", "CONFIG GET"})


class ServerPipeline:
    """
    Sends commands, by their numbers, at once; `asked` are those whose slot is not yet the server's own. An error of the
    connection is what became of each.
    """

    def __init__(
        self,
        server: redis.Redis,
        commands: Mapping[int, Command],
        asked: Container[int] = (),
        replicas: Replicas | None = None,
        *,
        is_first: bool = False,
    ) -> None:
        self._parse: Callable[..., Any] = server.parse_response
        self._pool: Any = server.connection_pool
        self._numbers, self._asked, self._replicas = list(commands), asked, replicas
        self._sent: list[Command] = []
        for number, command in commands.items():
            self._sent += [("ASKING",), command] if number in asked else [command]
        if replicas:
            self._sent.append(wait_command(replicas))
        self._connection: Any = None
        self._failure: Exception | None = None
        self._is_whole, self._is_first = False, is_first
        try:
            self._connection = self._pool.get_connection()
            sending(self._connection, is_first)
            self._connection.send_packed_command(self._connection.pack_commands(self._sent), check_health=False)
        except (RedisError, OSError) as error:
            self._failure = error
        self._sent_at = clock.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            if not self._is_whole:
                self._connection.disconnect()
            self._pool.release(self._connection)

    def read(self) -> dict[int, Any]:
        """The reply, or error, of each command by its number."""
        self._wait(clock.monotonic() - self._sent_at)  # all servers are waited for together
        replies = [self._read_one(str(self._sent[0][0]))]
        self._wait(0.0)
        replies += [self._read_one(str(command[0])) for command in self._sent[1:]]
        self._is_whole = self._failure is None
        rest = iter(judged(replies, self._replicas) if self._replicas else replies)
        found = {}
        for number in self._numbers:
            if number in self._asked:
                next(rest)
            found[number] = next(rest)
        return found

    def _wait(self, waited: float) -> None:
        try:
            if not self._failure:
                sending(self._connection, self._is_first, waited)
        except RedisError as error:
            self._failure = error

    def _read_one(self, name: str) -> Any:
        if self._failure:
            return self._failure
        try:
            return self._parse(self._connection, name)
        except ResponseError as error:
            return error
        except (RedisError, OSError) as error:
            self._failure = error
            return error


def slot_of(command: Command) -> int | None:
    """The slot of a command's first key, None when it has none."""
    name = command[0]
    if name in SCRIPTS:
        return key_slot(_bytes(command[3])) if int(command[2]) else None
    return None if name in KEYLESS or len(command) == 1 else key_slot(_bytes(command[1]))


def _bytes(word: Argument) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
