"""A server behind a proxy, which is reached as a server, by Sentinel, or as a cluster of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from redis.sentinel import Sentinel

from lowkiq.transport import sentinel
from tests.support import HOST, free_port, wait_until
from tests.transport.kinds.member import Member
from tests.transport.tcp_proxy import TcpProxy

P = TypeVar("P", bound=TcpProxy)

#: How a server is reached → the kind of server that it is.
KINDS = {"cluster": "cluster"} | dict.fromkeys(("server", "sentinel", "user's", "user's sentinel"), "server")


@contextmanager
def proxied(kind: str, directory: Path, proxy_type: type[P]) -> Iterator[tuple[P, Member]]:
    """A server of a kind, and the proxy before it."""
    port = free_port(bus=True)
    with proxy_type(port) as proxy:
        of_cluster = ("--cluster-enabled", "yes", "--cluster-announce-port", str(proxy.port))
        server = Member(directory, port, *(of_cluster if kind == "cluster" else ()))
        server.start()
        if kind == "cluster":
            server.ask("CLUSTER", "ADDSLOTS", *range(16384))
            wait_until(lambda: "cluster_state:ok" in str(server.ask("CLUSTER", "INFO")))
        yield proxy, server
        server.kill()


def settings_for(
    way: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch, timeout: float, **options: Any
) -> dict[str, Any]:
    """Settings that lead there, of a client with that socket_timeout; `options` are of one that the user makes."""
    address = HOST, proxy.port
    for asks in (Sentinel, sentinel._Sentinel):
        monkeypatch.setattr(asks, "discover_master", lambda *_: address)
    options = {"socket_timeout": timeout} | options
    if way == "user's":
        return {"redis": lambda: redis.Redis(HOST, proxy.port, **options)}
    if way == "user's sentinel":
        return {"redis": lambda: Sentinel([address], **options).master_for("s")}
    scheme = "redis" if way == "server" else f"redis+{way}"
    service = "/s" if way == "sentinel" else ""
    return {"redis_url": f"{scheme}://{HOST}:{proxy.port}{service}/0?socket_timeout={timeout:g}"}
