"""Commands to one server, several in one round trip. For Cluster see cluster.py."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

import redis
from hiredis import pack_command
from redis.connection import Connection, UnixDomainSocketConnection
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from lowkiq.transport.patience import PatientRetry, sending, sent

Argument = str | bytes | int | float
Command = tuple[Argument, ...]

#: Commands that run a script. Their third word is the number of keys.
SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})
#: Commands of whose replies the client would parse nothing; they come by the thousand.
UNPARSED: Final = SCRIPTS | {"HMGET"}
#: Bytes that are sent at once: more than a node mostly sends in a round trip.
PART: Final = 16_384
#: In parts of the time after which a look at the sentinels is due: who asks before it sends looks before that would.
SOON: Final = 0.9
TIMEOUTS: Final = (redis.TimeoutError, TimeoutError)


class Replicas(NamedTuple):
    """The number of replicas that must have a write, and within how many seconds."""

    number: int
    within: float


class NotReplicated(RedisError):
    """The primary has a write, but not enough replicas have confirmed it."""


class Server:
    """Sends commands to one server, which Sentinel may have found. ClusterClient has the same methods."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        #: None for a client that is something else than a pool of sockets.
        self.connections = Connections.of(client)

    @property
    def losses(self) -> int:
        """As those of its connections; 0 of a client that is something else."""
        return self.connections.losses if self.connections else 0

    def command(self, *words: Any) -> Any:
        """Sends one command and returns its reply; raises its error."""
        (reply,) = self.pipeline([words])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, commands: Sequence[Command], replicas: Replicas | None = None) -> list[Any]:
        """
        Sends commands in one round trip; gives for each its reply or error, with `replicas` NotReplicated if too few
        have what was written. An error of the connection is raised.
        """
        with_wait = [*commands, wait_command(replicas)] if replicas else commands
        if self.connections:
            replies = self._ask(self.connections, with_wait)
        else:
            with self._client.pipeline(transaction=False) as pipeline:
                for command in with_wait:
                    pipeline.execute_command(*command)
                sent()
                replies = list(pipeline.execute(raise_on_error=False))
        for reply in replies:
            # A primary that has become a replica would refuse for ever, while another may have its name in the URL. The
            # latter is Redis 6.2's, of a script.
            if isinstance(reply, ReadOnlyError) or (isinstance(reply, ResponseError) and "-READONLY" in str(reply)):
                self.leave()
        return judged(replies, replicas) if replicas else replies

    def load(self, sources: Iterable[str]) -> None:
        """Has the server remember scripts."""
        for reply in self.pipeline([("SCRIPT LOAD", source) for source in sources]):
            if isinstance(reply, Exception):
                raise reply

    def _ask(self, connections: Connections, commands: Sequence[Command]) -> list[Any]:
        """
        All that is sent goes this way, however few commands these are: here a connection in doubt, on which a reply may
        still come, is closed by whatever error, and never used again. Clients and pools have ways round that.
        """
        if commands[0][0] in UNPARSED:
            return connections.pipeline(commands)
        replies = connections.pipeline([(*str(name).split(), *rest) for name, *rest in commands])
        callbacks = self._client.response_callbacks
        return [
            callbacks[command[0]](reply) if command[0] in callbacks and not isinstance(reply, Exception) else reply
            for command, reply in zip(commands, replies, strict=True)
        ]

    def leave(self) -> None:
        """Closes idle connections; they are opened again when they are needed."""
        if self.connections:
            self.connections.leave()
        else:
            close_idle(self._client.connection_pool)


class Connections:
    """
    Sends commands right over the connections of a client's pool, and returns replies unparsed. A client's own
    execute_command and pool dispatch, measure, check and parse for each command, which takes longer than Redis does.

    The number of connections, their timeouts and retries are those that the client was made with. Idle ones stay here,
    so that the next command finds one at once, but at most half of all: the client's own commands take theirs from the
    pool, and would wait in vain.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self.pool: Any = pool
        #: Of a pool that Sentinel tells which server is the primary: looks, now and then, whether it is another.
        self._follow: Callable[..., None] | None = getattr(pool, "follow", None)
        #: Something between may forget a connection in silence.
        self.is_by_network = not issubclass(getattr(pool, "connection_class", object), UnixDomainSocketConnection)
        #: Whether what a push sends is sent again when no reply comes.
        retry = getattr(pool, "connection_kwargs", {}).get("retry")
        self._repeats = self.is_by_network and isinstance(retry, PatientRetry)
        self._most_idle = pool.max_connections // 2
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._waiting = 0
        self._process = os.getpid()
        self._losses = 0
        self._address: object = None

    @classmethod
    def of(cls, client: object) -> Self | None:
        """None for a client that is something else than a pool of sockets to one server: a Cluster's, or fakeredis."""
        pool: Any = getattr(client, "connection_pool", None)
        makes = getattr(pool, "connection_class", type)
        is_socket = issubclass(makes, Connection | UnixDomainSocketConnection)
        # Others' connections (fakeredis has some) may have no sockets.
        is_ours = is_socket and makes.__module__.partition(".")[0] in {"redis", "lowkiq"}
        return cls(pool) if is_ours and getattr(client, "connection", None) is None else None

    @property
    def losses(self) -> int:
        """How often one was lost, or another server named. Who answers now may have less than was read before."""
        if self._follow:
            self._follow(SOON)  # so that what is sent next does not itself find another
            if self._address != self.pool.master_address:
                self._losses, self._address = self._losses + 1, self.pool.master_address
        return self._losses

    def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies, errors of the server among them. An error of the connection is raised."""
        return self.send(_Parts(commands) if len(commands) > 1 else [pack_command(commands[0])], len(commands))

    def send(self, parts: Iterable[bytes], count: int) -> list[Any]:
        """The same for `count` commands that are packed already. A retry iterates over the parts again."""
        connection = self._take()
        try:
            try:
                return _exchange(connection, parts, count, self._repeats)
            except (RedisError, OSError) as error:
                self._losses += 1
                if isinstance(error, TIMEOUTS):  # whatever has forgotten this one may have forgotten the others
                    self.leave()
                return _repeat(connection, parts, count, error)
        except BaseException:  # a reply may be on its way, and must not be taken for that of the next command
            connection.disconnect()
            raise
        finally:
            self._give_back(connection)

    def leave(self) -> None:
        """Closes idle connections, here and in the pool; they are opened again when they are needed."""
        close_idle(self.pool)
        with self._lock:
            for connection in self._idle:
                connection.disconnect()

    def _take(self) -> Any:
        if self._follow:
            self._follow()
        with self._lock:
            if self._process != os.getpid():  # forked: the sockets are the parent's, and the pool has noticed too
                self._idle, self._waiting, self._process = [], 0, os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if not self._follow or self.pool.owns_connection(connection):
                    return connection
                self.pool.release(connection)  # which closes what leads to a primary of before
            self._waiting += 1
        try:
            return self.pool.get_connection()
        finally:
            with self._lock:
                self._waiting -= 1

    def _give_back(self, connection: Any) -> None:
        with self._lock:
            if not self._waiting and len(self._idle) < self._most_idle:
                self._idle.append(connection)
                return
        self.pool.release(connection)


class _Parts:
    """Packs commands part by part: Redis works on the first pushes of many jobs while the next are packed."""

    def __init__(self, commands: Sequence[tuple[Any, ...]]) -> None:
        self._commands = commands

    def __iter__(self) -> Iterator[bytes]:
        part: list[bytes] = []
        size = 0
        for command in self._commands:
            packed = pack_command(command)
            part.append(packed)
            size += len(packed)
            if size >= PART:
                yield b"".join(part)
                part, size = [], 0
        if part:
            yield b"".join(part)


def close_idle(pool: Any) -> None:
    """Closes what is idle in a pool. That of redis-py before 7 whose users wait would close what is in use as well."""
    if isinstance(pool, redis.BlockingConnectionPool):
        waiting: Any = pool.pool
        with waiting.mutex:
            for connection in waiting.queue:
                if connection:
                    connection.disconnect()
    elif isinstance(pool, redis.ConnectionPool):
        pool.disconnect(inuse_connections=False)


def _exchange(connection: Any, parts: Iterable[bytes], count: int, is_first: bool = False) -> list[Any]:
    if not connection._sock:
        connection.connect()
    sending(connection, is_first)
    connection.send_packed_command(parts)
    return read_replies(connection, count)


def _repeat(connection: Any, parts: Iterable[bytes], count: int, error: Exception) -> list[Any]:
    """Retries as often as the client would, which counts the first try: most commands never come here."""
    failed = [error]

    def send() -> list[Any]:
        if failed:
            raise failed.pop()
        return _exchange(connection, parts, count)

    replies: list[Any] = connection.retry.call_with_retry(send, lambda _error: connection.disconnect())
    return replies


def read_replies(connection: Any, count: int) -> list[Any]:
    """Reads `count` replies, errors of the server among them."""
    replies: list[Any] = []
    for _ in range(count):
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def wait_command(replicas: Replicas) -> Command:
    """The command that waits until replicas have what this connection has written so far."""
    return ("WAIT", replicas.number, round(replicas.within * 1000))


def judged(replies: list[Any], replicas: Replicas) -> list[Any]:
    """The replies before the one to WAIT; errors in their place if that says that too few replicas have the writes."""
    *replies, had = replies
    if isinstance(had, Exception):
        lacking: Exception = had
    elif had >= replicas.number:
        return replies
    else:
        lacking = NotReplicated(f"{had} of {replicas.number} replicas had it within {replicas.within:g} s")
    return [reply if isinstance(reply, Exception) else lacking for reply in replies]
