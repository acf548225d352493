"""TLS: jobs run over it, and a server that can't show that it is the right one is not talked to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from lowkiq.queue.call import Caller
from lowkiq.settings import Settings
from lowkiq.transport.connect import client_for_node
from tests.transport.kinds.load import Load
from tests.transport.kinds.tls import RedisTls

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tls() -> Iterator[RedisTls]:
    with RedisTls(password="secret") as tls:
        yield tls


def test_jobs_run_over_it_with_a_password(tls: RedisTls, tmp_path: Path) -> None:
    with Load(tmp_path, tls.url.replace("://", "://:secret@"), nodes=1, lease_ttl=5) as load:
        assert load.finish()[1:4] == ([], [], [])


@pytest.mark.parametrize("options", ["", "?ssl_ca_certs={ca}&ssl_check_hostname=true"])
def test_a_server_that_nobody_vouches_for_is_not_talked_to(tls: RedisTls, options: str) -> None:
    host = "localhost.localdomain" if options else "127.0.0.1"
    url = f"rediss://:secret@{host}:{tls.port}/0{options.format(ca=tls.ca)}"
    caller = Caller(client_for_node(Settings(redis_url=url), 1))
    with pytest.raises(redis.ConnectionError) as caught:
        caller.command("PING")
    assert "secret" not in str(caught.value)


def test_a_client_may_have_to_show_a_certificate() -> None:
    with RedisTls(clients_need_certificates=True) as tls:
        without = Caller(client_for_node(Settings(redis_url=tls.url), 1))
        with pytest.raises(redis.ConnectionError):
            without.command("PING")
        url = f"{tls.url}&ssl_certfile={tls.certificate}&ssl_keyfile={tls.key}"
        caller = Caller(client_for_node(Settings(redis_url=url), 1))
        assert caller.command("PING")
        caller.close()
        without.close()
