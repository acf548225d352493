"""Clients of Redis from settings: TCP, TLS and unix sockets; how they time out and what they repeat."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import redis
import structlog
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from lowkiq.errors import RedisUnsuitable, SettingsError, short
from lowkiq.settings import Settings

logger = structlog.get_logger("lowkiq")

#: Seconds for one reply. A script is O(batch), so a server that takes longer is in trouble, not busy.
SOCKET_TIMEOUT = 10.0
#: Seconds to connect.
CONNECT_TIMEOUT = 5.0
#: How often a producer repeats a call whose reply was lost, over about two seconds. Safe: scripts are idempotent.
PRODUCER_RETRIES = 4

#: Seconds that a look of the web view may wait for a connection, and for a reply; and how many look at a time.
PATIENCE = 2.0
PEOPLE_CONNECTIONS = 10

SCHEMES = ("redis", "rediss", "unix")

#: Redis before 6.2 has no ZMSCORE and no ZADD LT.
OLDEST_REDIS = (6, 2)


def client_for_producers(settings: Settings) -> redis.Redis:
    """A client over a pool of `client_pool_size` connections; who waits longer than `pool_timeout` gets an error."""
    backoff = ExponentialWithJitterBackoff(base=0.05, cap=1.0)
    return _client(settings, settings.client_pool_size, settings.pool_timeout, Retry(backoff, PRODUCER_RETRIES))


def client_for_node(settings: Settings, connections: int) -> redis.Redis:
    """A client that repeats nothing by itself: a node must know of a lost reply."""
    return _client(settings, connections, settings.pool_timeout, Retry(NoBackoff(), 0))


def client_for_people(settings: Settings) -> redis.Redis:
    """A client for the web view: who looks at a page wants to know soon that Redis is away or slow."""
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))  # a connection that Redis has closed
    return _client(settings, PEOPLE_CONNECTIONS, PATIENCE, retry, reply_within=PATIENCE)


def _client(
    settings: Settings, connections: int, timeout: float, retry: Retry, *, reply_within: float = SOCKET_TIMEOUT
) -> redis.Redis:
    if settings.redis is not None:
        return _from_factory(settings)
    options: dict[str, Any] = {
        "max_connections": connections,
        "timeout": timeout,
        "retry": retry,
        "socket_timeout": reply_within,
        "protocol": 2,  # the reply types are those of every server and client version we support
        "client_name": "lowkiq",
    }
    if not settings.redis_url.startswith("unix:"):
        options |= {"socket_connect_timeout": min(CONNECT_TIMEOUT, reply_within), "socket_keepalive": True}
    pool = redis.BlockingConnectionPool.from_url(settings.redis_url, **options)
    return redis.Redis.from_pool(pool)


def _from_factory(settings: Settings) -> redis.Redis:
    assert settings.redis is not None  # noqa: S101 (for mypy; the caller has looked)
    client = settings.redis()
    if client.get_encoder().decode_responses:
        raise SettingsError("the client made by `redis` decodes replies; make it with decode_responses=False")
    return client


def check_server(client: redis.Redis) -> None:
    """
    Refuses a server that is too old, or that throws keys away when memory is full. One that does not let us look (a
    user without INFO, fakeredis) is taken on trust.

    Raises:
        RedisUnsuitable: says what to change.
    """
    try:
        server, memory = client.info("server"), client.info("memory")
    except ResponseError as error:
        logger.warning("redis_not_checked", error=str(error)[:200])
        return
    version = tuple(int(part) for part in str(server.get("redis_version", "0")).split(".")[:2])
    if version < OLDEST_REDIS:
        raise RedisUnsuitable(f"Redis {server['redis_version']} is too old, Lowkiq needs 6.2 or later (or Valkey)")
    policy = memory.get("maxmemory_policy", "noeviction")
    if memory.get("maxmemory") and policy != "noeviction":
        raise RedisUnsuitable(
            f"Redis has maxmemory-policy {policy}: when memory is full it would throw jobs away. "
            "Set `maxmemory-policy noeviction`, or give Lowkiq a Redis of its own"
        )


def check_url(url: str) -> None:
    """Raises SettingsError for a URL that no client can be made from."""
    if not isinstance(url, str):
        raise SettingsError(f"redis_url must be a string, not {short(url)}")
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in SCHEMES:
        raise SettingsError(
            f"can't use the Redis URL {redact(url)!r}: it must begin with "
            + ", ".join(f"{scheme}://" for scheme in SCHEMES)
        )
    try:
        redis.ConnectionPool.from_url(url).make_connection()  # connects to nothing yet
        _ = urlsplit(url).port
    except (TypeError, ValueError) as error:
        raise SettingsError(f"can't use the Redis URL {redact(url)!r}: {error}") from error


def redact(url: str) -> str:
    """The URL without its password, for people and logs."""
    url = re.sub(r"(?<=://)([^/@]*?):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", r"\1***", url)
