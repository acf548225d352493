"""ServerPipeline: commands on their way to one server of a cluster; their slots, and their replies sorted in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import redis
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from lowkiq.transport.server import SCRIPTS, Argument, Command, Replicas, judged, wait_command

#: Commands that name no key, and so may go anywhere.
KEYLESS: Final = frozenset({"TIME", "PING", "INFO", "CONFIG GET"})


class ServerPipeline:
    """Commands on their way to one server, sent at once. An error of the connection is what became of each."""

    def __init__(self, server: redis.Redis, commands: Sequence[Command]) -> None:
        self._parse: Callable[..., Any] = server.parse_response
        self._pool: Any = server.connection_pool
        self._commands = commands
        self._connection: Any = None
        self._failure: Exception | None = None
        self._is_whole = False
        try:
            self._connection = self._pool.get_connection()
            self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        except (RedisError, OSError) as error:
            self._failure = error

    def read(self) -> list[Any]:
        """For each command its reply or error."""
        replies = [self._failure or self._read_one(str(command[0])) for command in self._commands]
        self._is_whole = self._failure is None
        return replies

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            if not self._is_whole:
                self._connection.disconnect()
            self._pool.release(self._connection)

    def _read_one(self, name: str) -> Any:
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


def packed(
    commands: Sequence[Command], numbers: Sequence[int], asked: Mapping[int, object], replicas: Replicas | None
) -> list[Command]:
    """The commands of these numbers as they are sent to one server."""
    packed: list[Command] = []
    for number in numbers:
        if number in asked:
            packed.append(("ASKING",))
        packed.append(commands[number])
    if replicas:
        packed.append(wait_command(replicas))
    return packed


def sort_in(
    read: list[Any], numbers: Sequence[int], replies: list[Any], asked: Mapping[int, object], replicas: Replicas | None
) -> None:
    """Puts what was read where it belongs among the replies to all commands."""
    rest = iter(judged(read, replicas) if replicas else read)
    for number in numbers:
        if number in asked:
            next(rest)
        replies[number] = next(rest)
