"""Commands for the servers of a cluster: in order for a slot, and waited for together."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from lowkiq import clock
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.cluster_pipeline import ServerPipeline


class Server:
    """Answers each command with its name; it is its own pool, connection and socket."""

    def __init__(self) -> None:
        self.connection_pool: Any = self
        self.connection_class = redis.Connection
        self._sock, self.socket_timeout, self.timeout = self, 5.0, 5.0
        #: Seconds that each reply was waited for at most.
        self.waits: list[float] = []
        self.ran: list[str] = []

    def get_connection(self) -> Any:
        return self

    def gettimeout(self) -> float:
        return self.timeout

    def settimeout(self, seconds: float) -> None:
        self.timeout = seconds

    def pack_commands(self, commands: Any) -> Any:
        return commands

    def send_packed_command(self, commands: Any, **_: Any) -> None:
        self.ran += [command[0] for command in commands]

    def parse_response(self, _: Any, name: str) -> str:
        self.waits.append(self.timeout)
        return name

    def release(self, _: Any) -> None:
        pass

    def disconnect(self) -> None:
        pass


def test_servers_are_waited_for_together_and_each_reply_after_the_first_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now, server = [100.0], Server()
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    pipeline = ServerPipeline(server, {0: ("ONE",), 1: ("TWO",), 2: ("THREE",)})  # type: ignore[arg-type]
    now[0] += 4.0  # another one's replies
    assert pipeline.read() == {0: "ONE", 1: "TWO", 2: "THREE"}
    assert server.waits == [1.0, 5.0, 5.0]


def test_what_has_been_there_for_long_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now, server = [100.0], Server()
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    pipeline = ServerPipeline(server, {0: ("ONE",)})  # type: ignore[arg-type]
    now[0] += 60.0
    assert pipeline.read() == {0: "ONE"}
    assert server.waits[0] > 0


def test_no_command_overtakes_one_of_its_slot_whose_server_was_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what was pushed first, and is repeated, would come after what was pushed then."""
    server, found = Server(), iter([redis.ConnectionError("nobody knows"), *["node"] * 9])

    def node_of(*_: object) -> Any:
        if isinstance(one := next(found), Exception):
            raise one
        return Node()

    class Node:
        name = "node"

    monkeypatch.setattr(ClusterClient, "_node_of", node_of)
    monkeypatch.setattr(ClusterClient, "_server", lambda *_: server)
    monkeypatch.setattr(ClusterClient, "refresh", lambda *_: None)
    client = ClusterClient(lambda: pytest.fail("not made"), connections=1, patience=1.0, delays=(0.0,))
    replies = client.pipeline([("FIRST", "{a}1"), ("SECOND", "{a}2")])
    assert (replies, server.ran) == (["FIRST", "SECOND"], ["FIRST", "SECOND"])
