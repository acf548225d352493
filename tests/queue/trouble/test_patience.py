"""push_timeout: a push waits for no longer than that for an answer, and its error says what is known of the outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lowkiq import Pushed, PushFailed, Worker
from tests.support import HOST, RedisServer, free_port, running_redis, until_pushed

#: Seconds that a push may wait, and that a busy machine may take besides.
TIMEOUT, SPARE = 0.5, 20.0


@pytest.fixture(params=["unix", "tcp"])
def server(request) -> Iterator[RedisServer]:
    with running_redis(port=free_port() if request.param == "tcp" else 0) as server:
        yield server


@pytest.fixture
def worker(server, make_app) -> type[Worker]:
    return make_app(redis_url=server.url, push_timeout=TIMEOUT).worker(queue_name="q", shards_count=3)(work)


def work(payloads_by_id): ...


def failure(push: Callable[[], object]) -> str:
    """The text of the push's failure, which comes in time."""
    began = time.monotonic()
    with pytest.raises(PushFailed) as caught:
        push()
    assert time.monotonic() - began < TIMEOUT + SPARE
    return str(caught.value)


ONE = [{"id": "a"}]
MANY = [{"id": number} for number in range(3_000)]


@pytest.mark.parametrize("jobs", [ONE, MANY], ids=["one", "many"])
def test_a_stopped_redis_costs_no_more(server, worker, jobs):
    until_pushed(lambda: worker.perform_async([{"id": "before"}]))
    server.pause()
    text = failure(lambda: worker.perform_async(jobs))
    assert f"took 0 of {len(jobs)} payloads for sure, of the others nobody knows: " in text
    assert "see its log, whether it is overloaded or stopped" in text
    server.resume()
    assert sum(until_pushed(lambda: worker.perform_async(jobs))) == len(jobs)


@pytest.mark.parametrize("jobs", [ONE, MANY], ids=["one", "many"])
def test_nor_one_that_was_stopped_before_the_first_push(server, worker, jobs):
    server.pause()
    assert f"none of {len(jobs)} payloads was sent" in failure(lambda: worker.perform_async(jobs))


def test_nor_with_more_threads_than_connections(server, make_app):
    worker = make_app(redis_url=server.url, push_timeout=TIMEOUT, client_pool_size=2).worker(queue_name="q")(work)
    until_pushed(lambda: worker.perform_async(ONE))
    server.pause()
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(failure(lambda: worker.perform_async(ONE)))) for _ in "abcdef"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(texts) == 6


def test_nor_does_one_that_is_away(server, worker):
    until_pushed(lambda: worker.perform_async(ONE))
    server.stop()
    assert "see whether it runs" in failure(lambda: worker.perform_async(ONE))


def test_one_that_comes_back_in_time_has_the_job(server, make_app):
    worker = make_app(redis_url=server.url, push_timeout=60).worker(queue_name="q")(work)
    until_pushed(lambda: worker.perform_async(ONE))
    server.pause()
    timer = threading.Timer(0.3, server.resume)
    timer.start()
    assert worker.perform_async([{"id": "b"}]) == Pushed(1, 0)
    timer.join()


def test_queries_and_actions_have_their_own_time(server, make_app):
    app = make_app(redis_url=server.url, push_timeout=0.5)
    worker = app.worker(queue_name="q")(work)
    until_pushed(lambda: worker.perform_async(ONE))
    server.pause()
    timer = threading.Timer(1.5, server.resume)
    timer.start()
    assert [job.id for job in worker.queries.fetch(["a"])] == ["a"]
    timer.join()


def test_a_server_that_takes_no_connection_is_not_waited_for_longer(make_app):
    """Nobody accepts there, and the queue of connections is full: what knocks is not answered."""
    import socket

    with socket.socket() as listener, socket.socket() as first:
        listener.bind((HOST, 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        url = f"redis://{HOST}:{listener.getsockname()[1]}/0"
        worker = make_app(redis_url=url, push_timeout=TIMEOUT).worker(queue_name="q")(work)
        assert "none of 1 payloads was sent" in failure(lambda: worker.perform_async(ONE))
