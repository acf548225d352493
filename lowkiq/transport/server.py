"""Wires: how commands get to Redis, several in one round trip. Here the one to a single server; see cluster.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import redis
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from lowkiq.transport.connection import Line

Argument = str | bytes | int | float
Command = tuple[Argument, ...]

#: Commands that run a script. Their third word is the number of keys.
SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})


class Replicas(NamedTuple):
    """How many replicas must have what was written, within how many seconds."""

    number: int
    within: float


class NotReplicated(RedisError):
    """What was written is in the primary, but not enough replicas have said that they have it."""


class Wire(Protocol):
    """A way to Redis."""

    #: Whether shards are spread over several servers: then one call can't be for several of them.
    is_spread: bool
    #: Its connections, where they all lead to one server, and nothing stands between.
    line: Line | None

    def command(self, *words: Any) -> Any:
        """Sends one command and returns its reply; raises its error."""

    def exchange(self, commands: Sequence[Command], replicas: Replicas | None = None) -> list[Any]:
        """Sends commands in one round trip; gives for each its reply or error. An error of the only one is raised."""

    def load(self, sources: Iterable[str]) -> None:
        """Has every server remember these scripts."""


class ServerWire:
    """To one server, be it found by Sentinel."""

    is_spread = False

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._execute: Callable[..., Any] = client.execute_command
        self.line = Line.of(client)

    def command(self, *words: Any) -> Any:
        try:
            return self._execute(*words)
        except ResponseError as error:
            self._leave_if_demoted(error)
            raise

    def exchange(self, commands: Sequence[Command], replicas: Replicas | None = None) -> list[Any]:
        if self.line and commands[0][0] in SCRIPTS:  # of what scripts return the client parses nothing
            replies = self.line.exchange([*commands, wait_command(replicas)] if replicas else commands)
        elif len(commands) == 1 and replicas is None:
            return [self._alone(commands[0])]
        else:
            replies = self._by_client(commands, replicas)
        for reply in replies:
            if isinstance(reply, ResponseError):
                self._leave_if_demoted(reply)
        return judged(replies, replicas) if replicas else replies

    def _by_client(self, commands: Sequence[Command], replicas: Replicas | None) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            add: Callable[..., Any] = pipeline.execute_command
            for command in commands:
                add(*command)
            if replicas:
                add(*wait_command(replicas))
            return list(pipeline.execute(raise_on_error=False))

    def load(self, sources: Iterable[str]) -> None:
        for reply in self.exchange([("SCRIPT LOAD", source) for source in sources]):
            if isinstance(reply, Exception):
                raise reply

    def _alone(self, command: Command) -> Any:
        try:
            return self.command(*command)
        except ResponseError as error:
            return error

    def _leave_if_demoted(self, error: ResponseError) -> None:
        """
        A primary that has become a replica keeps our connections, and would refuse for ever, while the name in the URL
        may have been given to another. Redis 6.2 tells of it within another error when a script has asked.
        """
        if isinstance(error, ReadOnlyError) or "-READONLY" in str(error):
            self._client.connection_pool.disconnect(inuse_connections=False)
            if self.line:
                self.line.leave()


def wait_command(replicas: Replicas) -> Command:
    """Waits for what this connection has written so far."""
    return ("WAIT", replicas.number, round(replicas.within * 1000))


def judged(replies: list[Any], replicas: Replicas) -> list[Any]:
    """The replies but the last, which tells how many replicas have all of it: errors, if these are too few."""
    *replies, had = replies
    if isinstance(had, Exception):
        lacking: Exception = had
    elif had >= replicas.number:
        return replies
    else:
        lacking = NotReplicated(f"{had} of {replicas.number} replicas had it within {replicas.within:g} s")
    return [reply if isinstance(reply, Exception) else lacking for reply in replies]
