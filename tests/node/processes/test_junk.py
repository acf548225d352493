"""Whatever somebody has written into Redis ends no node, and holds up no shard but that in which it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lowkiq.job import shard_of
from tests.junk import JUNK, sampled
from tests.node.nodes import Nodes
from tests.support import wait_until

#: Junk of the queue q, as it is told of the queue `jobs`; of others' keys as it is.
NAMES = [
    *(name for name in JUNK if name.startswith("kind of ") and "bulk" not in name),
    *(f"{what} b'<b>'" for what in ("shards_count", "processed", "pushed", "epoch", "until", "last_score", "seen")),
    "shards_count b'999999999'", "name of a queue", "beat deep", "name of a node", "record b'<b>'", "claimed b'<b>'",
    "record of several", "endless due", "crashes b'<b>'", "odd claim",
]  # fmt: skip


class Renamed:
    """A client that writes to the queue `jobs` what is meant for q."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        def send(key=b"", *words, **options):
            is_text = isinstance(key, str)
            renamed = key.replace("{q:", "{jobs:") if is_text else key.replace(b"{q:", b"{jobs:")
            return getattr(self._client, name)(*([renamed] if key else []), *words, **options)

        return send


@pytest.mark.parametrize("name", sampled(NAMES))
def test_a_node_runs_all_other_shards(name: str, nodes: Nodes) -> None:
    ids = [id for id in map(str, range(20)) if shard_of(id.encode(), 3) != 0]
    node = nodes.start(lease_ttl=6, threads_per_node=1).wait_ready()
    nodes.push(*({"id": id, "payload": {"round": 0}} for id in ids))
    wait_until(lambda: all(map(nodes.ended, ids)))
    JUNK[name][0](Renamed(nodes.app.redis()), nodes.namespace)
    seen = nodes.recorded()
    nodes.push(*({"id": id, "payload": {"round": 1}} for id in ids))
    wait_until(lambda: nodes.recorded() - seen >= 2 * len(ids))
    assert node.is_running()
    assert not node.logged("beat_failed")


@pytest.mark.parametrize("name", ["shards_count b'<b>'", "name of a queue", "kind of due", "kind of {history}"])
def test_shards_of_a_node_that_is_away_are_fostered_all_the_same(name: str, make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=6)
    nodes.push(*({"id": str(id), "payload": {}} for id in range(60)))
    JUNK[name][0](Renamed(nodes.app.redis()), nodes.namespace)
    nodes.start(lease_ttl=6, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    ids = [id for id in map(str, range(60)) if shard_of(id.encode(), 6) != 0]
    wait_until(lambda: all(map(nodes.ended, ids)))
