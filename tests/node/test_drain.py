"""What a drain says at its end, and how long it waits for a Redis that is silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.node.drain import Drain
from lowkiq.node.threads import leases_of
from tests.node.driven import acquire, runtime_of, thread_of
from tests.support import RedisServer


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


def test_outcomes_that_a_silent_redis_never_heard_are_named_and_little_is_waited_for_it(
    own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Lowkiq(redis_url=own_server.url, lease_ttl=300)
    worker = app.worker(queue_name="jobs", shards_count=1, batch_size=2)(lambda _: None)
    (lease,) = leases_of(runtime_of(app), worker)
    acquire(lease)
    worker.perform_async([{"id": "a"}, {"id": "b"}])
    thread = thread_of(lease.runtime, lease)
    assert thread._pick_and_exchange()
    thread._perform()
    keeper: Any = SimpleNamespace(stop=lambda: None, join=lambda _: None, drain=lambda: None)
    drain = Drain(lease.runtime, [thread], keeper, {})
    own_server.pause()
    began = clock.monotonic()
    drain.advance(began)
    assert drain.end() == 1
    took = clock.monotonic() - began
    own_server.resume()
    said = "".join(capsys.readouterr())
    assert "abandoned" in said and "ended_and_run_again" in said and "a" in said.split("ended_and_run_again")[1][:30]
    assert took < lease.runtime.settings.lease_ttl / 3, "as long as a node waits for one reply otherwise"
    app.close()
