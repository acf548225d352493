"""Clients of Redis from settings: a server, Sentinel, Cluster; how they time out and what they repeat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import ResponseError
from redis.retry import Retry

from lowkiq.errors import RedisUnsuitable, SettingsError
from lowkiq.log import get_logger
from lowkiq.redis_url import Target, parse
from lowkiq.settings import Settings
from lowkiq.transport.addresses import KEEPALIVE_OPTIONS
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.patience import FIRST_TRY, PATIENT, PatientBackoff, PatientRetry, make_patient
from lowkiq.transport.sentinel import sentinel_client

logger = get_logger()

#: Seconds for one reply. A script is O(batch), so a server that takes longer is in trouble, not busy.
SOCKET_TIMEOUT = 10.0
#: The same for a node, in parts of its lease: a reply that never comes costs it one of three renewals, not the lease;
#: and it goes on within five seconds, also where Sentinel is asked first.
NODE_PATIENCE = 1 / 6
#: Seconds to connect.
CONNECT_TIMEOUT = 5.0
#: The same for a process that pushes, unless half of its push_timeout is more. What is no push, such as metrics or
#: events, has no other bound, and is to go on within five seconds.
PRODUCER_PATIENCE = 2.5
#: How often a producer repeats a call whose reply was lost, over about two seconds. Safe: scripts are idempotent.
PRODUCER_RETRIES = 4
#: The same on Cluster, in seconds before each.
PRODUCER_DELAYS = (0.1, 0.3, 0.6, 1.0)

#: Seconds that the web view waits for a connection, and for a reply; and how many of its requests ask at a time.
PATIENCE = 2.0
PEOPLE_CONNECTIONS = 10
#: Connections to each server of a cluster besides pipelines: for the doorbell, and for a look at the topology.
OTHER_CONNECTIONS = 5
#: Connections of a node beside its worker threads': lease keeper, doorbell, heartbeat, main thread, one to spare.
NODE_CONNECTIONS = 5
#: Pipelines at a time through a cluster's client that the user makes; its own limits may be lower.
MADE_CONNECTIONS = 1_000

#: How URLs begin of a server whose connections nothing between can forget.
UNIX = "unix:"

#: Redis before 6.2 has no ZMSCORE and no ZADD LT.
OLDEST_REDIS = (6, 2)

#: How a policy is changed; servers of a vendor refuse CONFIG SET.
SET_POLICY = "CONFIG SET maxmemory-policy noeviction (a managed Redis has it in its settings or its parameter group)"

Client = redis.Redis | ClusterClient
_BlockingPool: Any = redis.BlockingConnectionPool


def client_for_producers(settings: Settings) -> Client:
    """A client whose `client_pool_size` connections are shared; a wait of `pool_timeout` for one is an error."""
    retry = PatientRetry(PatientBackoff(ExponentialWithJitterBackoff(base=0.05, cap=1.0)), PRODUCER_RETRIES)
    timeout = min(settings.pool_timeout, settings.push_timeout)
    patience = min(SOCKET_TIMEOUT, max(settings.push_timeout * FIRST_TRY, PRODUCER_PATIENCE))
    return _client(
        settings, settings.client_pool_size, timeout, retry,
        reply_within=SOCKET_TIMEOUT if settings.redis_url.startswith(UNIX) else patience, delays=PRODUCER_DELAYS,
    )  # fmt: skip


def client_for_node(settings: Settings, connections: int) -> Client:
    """A client that repeats nothing by itself: a node must know when a reply was lost."""
    patience = reply_patience(settings.lease_ttl)
    return _client(settings, connections, settings.pool_timeout, Retry(NoBackoff(), 0), reply_within=patience)


def check_connections(client: Client, may_need: int) -> None:
    """Warns of fewer connections than a node may need. Raises SettingsError for so few that nothing would run."""
    most = math.inf if isinstance(client, ClusterClient) else client.connection_pool.max_connections
    if most < NODE_CONNECTIONS:
        raise SettingsError(
            f"max_connections is {most}, and a node holds {NODE_CONNECTIONS} besides those of its threads: leave it "
            f"out of the URL, or of the client, or make it {may_need}"
        )
    if most < may_need:
        logger.warning(
            "few_connections", max_connections=most, may_need=may_need,
            advice="threads wait for each other: leave max_connections out, or raise it",
        )  # fmt: skip


def connections_of_node(threads: int) -> int:
    """Connections that a node of so many worker threads may open, beside those for pushing."""
    return 2 * threads + NODE_CONNECTIONS


def reply_patience(lease_ttl: float) -> float:
    """Seconds that a node waits for one reply: at least one."""
    return min(SOCKET_TIMEOUT, max(lease_ttl * NODE_PATIENCE, 1.0))


def client_for_people(settings: Settings) -> Client:
    """A client for the web view: people who open a page should soon learn that Redis is away or slow."""
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))  # a connection that Redis has closed
    return _client(settings, PEOPLE_CONNECTIONS, PATIENCE, retry, reply_within=PATIENCE, delays=(0.05,))


def _client(
    settings: Settings,
    connections: int,
    timeout: float,
    retry: Retry,
    *,
    reply_within: float,
    delays: Sequence[float] = (),
) -> Client:
    if settings.redis is not None:
        made: redis.Redis | redis.RedisCluster = settings.redis()
        if made.get_encoder().decode_responses:
            raise SettingsError("the client made by `redis` decodes replies; make it with decode_responses=False")
        if isinstance(made, redis.RedisCluster):
            return ClusterClient(lambda: made, connections=MADE_CONNECTIONS, patience=timeout, delays=delays)
        _bound(made.connection_pool, reply_within, retry)
        return made
    target = parse(settings.redis_url)
    options: dict[str, Any] = {
        "socket_timeout": reply_within,
        "protocol": 2,  # the reply types are those of every server and client version we support
        "client_name": "lowkiq",
    }
    if not settings.redis_url.startswith(UNIX):
        options |= {"socket_connect_timeout": min(CONNECT_TIMEOUT, reply_within), "socket_keepalive": True}
        options["socket_keepalive_options"] = KEEPALIVE_OPTIONS
    if target.kind == "cluster":
        return _cluster(target, options, connections, timeout, delays)
    options |= {"max_connections": connections, "timeout": timeout, "retry": retry}
    if target.kind == "sentinel":
        return sentinel_client(target, options)
    options |= target.options
    connection_class = PATIENT[options.get("connection_class", redis.Connection)]
    return redis.Redis.from_pool(_BlockingPool(**(options | {"connection_class": connection_class})))


def _bound(pool: Any, reply_within: float, usual: Retry) -> None:
    """
    Has a pool of the user's give up in time: where it has no time-outs and repeats nothing it gets ours, and what a
    push sends, connects and repeats takes no longer than that has. All else is as the user has it.
    """
    make_patient(pool)
    options: dict[str, Any] = pool.connection_kwargs
    for name, seconds in {"socket_timeout": reply_within, "socket_connect_timeout": CONNECT_TIMEOUT}.items():
        if options.get(name) is None:
            options[name] = min(seconds, reply_within)
    retry = options.get("retry")
    if retry is None:
        options["retry"] = usual
    elif type(retry) is Retry:
        options["retry"] = PatientRetry(PatientBackoff(retry._backoff), retry._retries, retry._supported_errors)
    # Those that it has made: its own set_retry knows no BlockingConnectionPool.
    for connection in getattr(pool, "_connections", getattr(pool, "_available_connections", ())):
        connection.retry = options["retry"]


def _cluster(
    target: Target, options: Mapping[str, Any], connections: int, timeout: float, delays: Sequence[float]
) -> ClusterClient:
    options = {"max_connections": connections + OTHER_CONNECTIONS} | dict(options) | dict(target.options)
    make_node: Any = ClusterNode
    make_server: Any = redis.Redis
    options["ssl"] = target.is_tls

    def make() -> redis.RedisCluster:
        nodes = []
        for host, port in target.addresses:
            server = make_server(host, port, retry=Retry(NoBackoff(), 0), **options)
            make_patient(server.connection_pool)  # before it asks for the topology: names are resolved in bounded time
            nodes.append(make_node(host, port, redis_connection=server))
        # Slots that nobody serves just now are an error of the calls for them, not of all.
        return redis.RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)

    return ClusterClient(make, connections=connections, patience=timeout, delays=delays)


def check_server(client: Client, *, volatile_eviction: bool = False) -> bool:
    """
    Refuses a server, or any primary of a cluster, that is too old, or throws keys away when memory is full, unless
    these are such as expire and that is meant to be: raises RedisUnsuitable, which says what to change. One that
    doesn't let us look (a user without INFO, fakeredis) is taken on trust; then it returns False.
    """
    servers = client.primaries() if isinstance(client, ClusterClient) else [client]
    return all(_check_one(server, volatile_eviction=volatile_eviction) for server in servers)


def is_too_old(info: Mapping[str, Any]) -> bool:
    """True for a server that, by its INFO, lacks commands that scripts need."""
    version = tuple(int(part) for part in str(info.get("redis_version", "0")).split(".")[:2])
    return version < OLDEST_REDIS


def server_name(info: Mapping[str, Any]) -> str:
    """A server's kind and version, by its INFO."""
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"


def evicting_policy(info: Mapping[str, Any]) -> str | None:
    """The maxmemory-policy of a server that, by its INFO, throws keys away when memory is full; else None."""
    policy = str(info.get("maxmemory_policy", "noeviction"))
    return policy if int(info.get("maxmemory", 0)) and policy != "noeviction" else None


def what_it_evicts(policy: str) -> str:
    """What a server with that policy would do when memory is full."""
    return "throw away what expires, so limits and throttles but no jobs" if is_volatile(policy) else "throw jobs away"


def is_volatile(policy: str) -> bool:
    """True for a policy by which only keys that expire are thrown away."""
    return policy.startswith("volatile-")


def _check_one(client: redis.Redis, *, volatile_eviction: bool) -> bool:
    try:
        server, memory = client.info("server"), client.info("memory")
    except ResponseError as error:
        logger.warning("redis_not_checked", error=str(error)[:200])
        return False
    if is_too_old(server):
        raise RedisUnsuitable(f"Redis {server['redis_version']} is too old, Lowkiq needs 6.2 or later (or Valkey)")
    policy = evicting_policy(memory)
    if policy and not (volatile_eviction and is_volatile(policy)):
        go_on = ", or say volatile_eviction=True to live with that" if is_volatile(policy) else ""
        raise RedisUnsuitable(
            f"Redis has maxmemory-policy {policy}: when memory is full it would {what_it_evicts(policy)}. "
            f"{SET_POLICY}, or give Lowkiq a Redis of its own{go_on}"
        )
    return True
