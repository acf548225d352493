"""Sentinel: connections to the server that is the primary now."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from lowkiq import clock
from lowkiq.redis_url import Target
from lowkiq.transport.addresses import ByAddress
from lowkiq.transport.patience import PATIENT, Patient, within
from lowkiq.transport.server import close_idle

#: Seconds to wait for a sentinel, before the next is asked.
SENTINEL_TIMEOUT: Final = 1.0
#: Seconds between asking for the primary while there are connections to one. An old primary that is alive keeps them,
#: and takes writes that nobody will ever read, until the sentinels make it a replica: ten seconds and more.
FOLLOW_INTERVAL: Final = 1.0


class _Asking(Patient, SentinelManagedConnection):
    """Asks the sentinels whenever it connects: redis-py's own does not when a command finds the connection cut."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self._sock:
            self.connect()  # type: ignore[no-untyped-call]
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


class _Connection(_Asking, ByAddress):
    pass


class _TlsConnection(_Asking, SentinelManagedSSLConnection, ByAddress):
    pass


PATIENT.update({SentinelManagedConnection: _Connection, SentinelManagedSSLConnection: _TlsConnection})


class _Bounded(Patient, redis.Connection):
    """Waits for a sentinel no longer than the push has that asks."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self._sock:
            self._sock.settimeout(within(self.socket_timeout))
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


class _ToSentinel(_Bounded, ByAddress):
    pass


class _TlsToSentinel(_Bounded, redis.SSLConnection, ByAddress):
    pass


class _Sentinel(Sentinel):
    """
    Asks for the primary's address, as clients should. redis-py asks what there is to know of it: of a failover that
    goes on that still has the old primary, which takes writes until the last replica follows the new one.
    """

    def discover_master(self, service_name: str) -> Any:
        problems: list[str] = []
        for sentinel in list(self.sentinels):
            try:
                found: Any = sentinel.sentinel_get_master_addr_by_name(service_name)
            except RedisError as error:
                problems.append(str(error))
                continue
            if found:
                self.sentinels.remove(sentinel)  # it is asked first from now on
                self.sentinels.insert(0, sentinel)
                host, port = found
                return host.decode() if isinstance(host, bytes) else host, int(port)
        asked = [client.connection_pool.connection_kwargs for client in self.sentinels]
        where = ", ".join(f"{options['host']}:{options['port']}" for options in asked)
        why = f"can't be asked: {problems[0]}" if problems else "know none: is that the name they have?"
        # In a line: redis-py shows its clients.
        raise MasterNotFoundError(f"no primary of {service_name!r}: the sentinels {where} {why}")


class _Pool(SentinelConnectionPool, redis.BlockingConnectionPool):
    """Waits for a free connection; drops those to an old primary."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._following = threading.Lock()
        self._followed_at = clock.monotonic()
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        self.follow()
        get: Any = super().get_connection
        return get(*arguments, **options)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """With False, as redis-py calls it when another is the primary, of those that are idle."""
        if inuse_connections:
            super().disconnect()
        else:
            close_idle(self)

    def follow(self, interval: float = 1.0) -> None:
        """
        Asks for the primary, if that was so many times FOLLOW_INTERVAL ago. From then on the pool owns connections to
        that one alone.
        """
        is_due = clock.monotonic() - self._followed_at >= FOLLOW_INTERVAL * interval
        if not is_due or not self._following.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(RedisError):  # sentinels that can't be asked now are asked again
                self.get_master_address()  # type: ignore[no-untyped-call]  # drops connections to another
            self._followed_at = clock.monotonic()
        finally:
            self._following.release()


def is_to_primary(pubsub: Any) -> bool:
    """Returns False once the sentinels have named another server than the one that a subscription listens to."""
    pool, connection = pubsub.connection_pool, pubsub.connection
    owns: Callable[[Any], bool] = pool.owns_connection
    return connection is None or not isinstance(pool, _Pool) or owns(connection)


def sentinel_client(target: Target, options: Mapping[str, Any]) -> redis.Redis:
    """A client of the service that a URL names."""
    patience = min(SENTINEL_TIMEOUT, options["socket_timeout"])
    of_sentinels = {
        "socket_timeout": patience,
        "socket_connect_timeout": patience,
        "retry": Retry(NoBackoff(), 0),  # there are others to ask
    }
    if target.is_tls:
        of_sentinels |= {name: value for name, value in target.options.items() if name.startswith("ssl_")}
        of_sentinels["ssl"] = True
    make_sentinel: Any = _Sentinel
    sentinel = make_sentinel(target.addresses, sentinel_kwargs=of_sentinels | dict(target.sentinel_options))
    for asked in sentinel.sentinels:
        asked.connection_pool.connection_class = _TlsToSentinel if target.is_tls else _ToSentinel
    connection_class = _TlsConnection if target.is_tls else _Connection
    options = dict(options) | dict(target.options) | {"connection_class": connection_class}
    return redis.Redis.from_pool(_Pool(target.service, sentinel, **options))
