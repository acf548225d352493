"""Which shards a node wants, as the original divides them, and which of its threads run which."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq import Lowkiq, SettingsError
from lowkiq.hooks import Splitter
from lowkiq.node.node import Node
from lowkiq.node.threads import part_of_node
from tests.node.driven import burst
from tests.support import RedisServer, wait_until


def test_by_node_deals_shards_to_nodes_in_turn() -> None:
    assert [list(part_of_node(range(8), number, 3)) for number in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_more_nodes_than_shards_leave_some_without() -> None:
    assert list(part_of_node(range(2), 3, 4)) == []


@given(st.integers(0, 60), st.integers(1, 9))
def test_each_shard_is_one_node_s(shards: int, nodes: int) -> None:
    parts = [part_of_node(range(shards), node, nodes) for node in range(nodes)]
    assert sorted(shard for part in parts for shard in part) == list(range(shards))


@pytest.mark.parametrize("split", [lambda shards: [shards, shards], lambda shards: [[*shards, shards[0]]]])
def test_a_splitter_that_gives_a_shard_out_twice_is_refused_at_boot(
    make_app: Callable[..., Lowkiq], split: Callable[..., object]
) -> None:
    words: list[BaseException] = []
    app = make_app(build_splitter=lambda number, of, threads: split, last_words=words.append)
    app.worker(queue_name="jobs")(lambda batch: None)
    assert Node(app, burst=True).run() == 3
    (word,) = words
    assert isinstance(word, SettingsError)
    assert "the splitter gives a shard to two threads, or twice to one" in str(word)


def test_a_node_that_is_refused_leaves_no_connection(
    make_app: Callable[..., Lowkiq], redis_server: RedisServer
) -> None:
    app = make_app(build_splitter=lambda number, of, threads: lambda shards: [shards, shards])
    app.worker(queue_name="jobs")(lambda batch: None)
    before = _connections(redis_server)
    node = Node(app, burst=True)  # kept: what is forgotten is closed by the interpreter, some day
    assert node.run() == 3
    wait_until(lambda: _connections(redis_server) <= before)


def _connections(server: RedisServer) -> set[str]:
    with server.client() as client:
        return {connection["id"] for connection in client.client_list() if connection["name"] == "lowkiq"}


def test_a_custom_splitter_is_made_with_the_node_s_numbers(make_app: Callable[..., Lowkiq]) -> None:
    made: list[tuple[int, int, int]] = []

    def build(number: int, number_of_nodes: int, threads: int) -> Splitter:
        made.append((number, number_of_nodes, threads))
        return lambda shards: [shards]

    app = make_app(build_splitter=build, threads_per_node=4)
    ran: list[str] = []
    worker = app.worker(queue_name="jobs")(lambda batch: ran.extend(sorted(batch)))
    worker.perform_async([{"id": number} for number in range(20)])
    burst(app, node_number=1, number_of_nodes=3)
    assert (made, len(ran)) == ([(1, 3, 4)], 20)


@pytest.mark.parametrize(("number", "of"), [(-1, 2), (2, 2), (0, 0)])
def test_a_node_number_that_is_not_one_of_the_nodes_is_refused(app: Lowkiq, number: int, of: int) -> None:
    app.worker(queue_name="jobs")(lambda batch: None)
    with pytest.raises(SettingsError, match="it must be from 0 to one less"):
        Node(app, node_number=number, number_of_nodes=of)


def test_an_application_without_workers_is_refused(app: Lowkiq) -> None:
    with pytest.raises(SettingsError, match=r"has no workers: register one with @app.worker"):
        Node(app)


def test_a_worker_without_perform_is_refused_by_a_node(app: Lowkiq) -> None:
    from lowkiq import Worker

    app.worker(type("Jobs", (Worker,), {}))
    with pytest.raises(SettingsError, match="worker Jobs has no perform"):
        Node(app)
