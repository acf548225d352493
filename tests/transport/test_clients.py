"""What a client may be made with, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lowkiq import SettingsError
from lowkiq.settings import Settings
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.connect import (
    SOCKET_TIMEOUT,
    check_connections,
    client_for_node,
    client_for_producers,
    connections_of_node,
)
from lowkiq.transport.patience import PatientRetry
from tests.support import HOST


def made(most: int) -> Any:
    return lambda: redis.Redis.from_pool(redis.BlockingConnectionPool(host=HOST, max_connections=most))


@pytest.mark.parametrize("way", ["url", "sentinel", "user's"])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_node_with_too_few_connections_is_refused_with_how_many_it_needs(way: str, most: int) -> None:
    settings = {
        "url": Settings(redis_url=f"redis://{HOST}:1/0?max_connections={most}"),
        "sentinel": Settings(redis_url=f"redis+sentinel://{HOST}:1/s/0?max_connections={most}"),
        "user's": Settings(redis=made(most)),
    }[way]
    with pytest.raises(SettingsError, match=f"max_connections is {most}.* make it 15"):
        check_connections(client_for_node(settings, 15), connections_of_node(5))
    client_for_producers(settings)


def test_with_few_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(redis_url=f"redis://{HOST}:1/0?max_connections=6")
    check_connections(client_for_node(settings, 15), connections_of_node(5))
    assert "few_connections" in "".join(capsys.readouterr())


@pytest.mark.parametrize("pool_type", [redis.ConnectionPool, redis.BlockingConnectionPool])
@pytest.mark.parametrize("retry", [None, Retry(NoBackoff(), 2)])
def test_what_a_push_repeats_by_a_client_of_the_users_is_bounded_by_its_time(pool_type: Any, retry: Any) -> None:
    pool = pool_type(host=HOST, retry=retry)
    made = pool.make_connection()
    for connections in (getattr(pool, name, []) for name in ("_connections", "_available_connections")):
        connections[:] = [made]
    client_for_producers(Settings(redis=lambda: redis.Redis.from_pool(pool)))
    assert isinstance(made.retry, PatientRetry)
    assert made.retry is pool.connection_kwargs["retry"]
    assert retry is None or made.retry._retries == 2


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_client_of_the_users_gets_time_outs_where_it_has_none(timeout: float | None) -> None:
    settings = Settings(redis=lambda: redis.Redis(HOST, socket_timeout=timeout, socket_connect_timeout=timeout))
    options = client_for_node(settings, 15).connection_pool.connection_kwargs
    assert options["socket_timeout"] == (timeout or 2.5)
    assert options["socket_connect_timeout"] == (timeout or 2.5)


@pytest.mark.parametrize("way", ["url", "sentinel", "cluster", "user's"])
def test_what_is_no_push_is_given_up_in_time_as_well(way: str) -> None:
    """All works again within five seconds, also where the time of a push does not count: metrics, queries, events."""
    ways: dict[str, dict[str, Any]] = {
        "url": {"redis_url": f"redis://{HOST}:1/0"},
        "sentinel": {"redis_url": f"redis+sentinel://{HOST}:1/s/0"},
        "cluster": {"redis_url": f"redis+cluster://{HOST}:1"},
        "user's": {"redis": lambda: redis.Redis(HOST, socket_timeout=None)},
    }
    options = ways[way]
    assert timeout_of_replies(Settings(**options)) == 2.5
    assert timeout_of_replies(Settings(push_timeout=8, **options)) == 4.0
    assert timeout_of_replies(Settings(push_timeout=100, **options)) == SOCKET_TIMEOUT


def test_nothing_forgets_a_connection_by_a_socket_of_unix() -> None:
    assert timeout_of_replies(Settings(redis_url="unix:///tmp/none")) == SOCKET_TIMEOUT


def timeout_of_replies(settings: Settings) -> float:
    """Seconds that who pushes waits for a reply."""
    client: Any = client_for_producers(settings)
    if not isinstance(client, ClusterClient):
        return float(client.connection_pool.connection_kwargs["socket_timeout"])
    with pytest.MonkeyPatch.context() as patch:
        told: dict[str, Any] = {}
        patch.setattr(redis, "RedisCluster", lambda **options: told.update(options))
        client._make()
        return float(told["socket_timeout"])
