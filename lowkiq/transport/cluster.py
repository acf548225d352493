"""A client of Redis Cluster, on top of redis-py's own, which keeps the topology and the connections."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import redis
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from lowkiq import clock
from lowkiq.transport.cluster_pipeline import ServerPipeline, slot_of
from lowkiq.transport.patience import in_time, is_over, make_patient, within
from lowkiq.transport.server import TIMEOUTS, Command, Connections, Replicas, close_idle

_node: Callable[..., ClusterNode] = ClusterNode

#: How often a command follows slots that move.
REDIRECTIONS: Final = 5
#: Seconds between looks at the topology, however many threads miss something.
REFRESH_INTERVAL: Final = 0.2
#: Errors that may be over the next moment.
TRANSIENT: Final = (redis.ConnectionError, redis.TimeoutError, ClusterDownError, TryAgainError)


class ClusterClient:
    """
    Sends the commands for one server in one round trip, and repeats only what it is told to. Threads can share it.

    Args:
        make: makes redis-py's client, which asks for the topology; called at first use.
        connections: pipelines at a time; each needs at most a connection to each server.
        patience: seconds to wait for one of them.
        delays: seconds before each repetition of what failed for a transient reason.
    """

    #: None, as there are several servers (see Server).
    connections: Connections | None = None

    def __init__(
        self, make: Callable[[], redis.RedisCluster], *, connections: int, patience: float, delays: Sequence[float] = ()
    ) -> None:
        self._make = make
        self._places = threading.BoundedSemaphore(connections)
        self._patience = patience
        self._delays = delays
        self._making = threading.Lock()
        self._made: redis.RedisCluster | None = None
        self._refreshing = threading.Lock()
        self._refreshed_at = 0.0
        #: How often servers were missed. Whoever answers for them now may have less than they had.
        self.losses = 0

    @property
    def cluster(self) -> redis.RedisCluster:
        """redis-py's client."""
        return in_time(self._make_once) if self._made is None else self._made

    def _make_once(self) -> redis.RedisCluster:
        with self._making:
            if self._made is None:
                with _as_redis_error():
                    self._made = self._make()
                made: Any = self._made
                for pool in [made.get_redis_connection(node).connection_pool for node in made.get_nodes()]:
                    pool.disconnect()
                    make_patient(pool).reset()
            return self._made

    def primaries(self) -> list[redis.Redis]:
        """A client of each primary."""
        return [self._server(node) for node in self._nodes()]

    def primary_of(self, key: str) -> redis.Redis:
        return self._server(self._node_of(key_slot(key.encode())))

    def pubsub(self) -> Any:
        """A subscription at any server: a message published at one reaches all."""
        make: Callable[..., Any] = self._server(self._any_node()).pubsub
        return make()

    def close(self) -> None:
        """Closes the connections; the next use opens new ones."""
        if (made := self._made) is not None:  # unlocked: to make it may take longer than anybody waits
            known: Any = made
            known.close()
            known.disconnect_connection_pools()

    def leave(self) -> None:
        """Closes idle connections: whatever has forgotten one in silence may have forgotten the others."""
        if (made := self._made) is not None:
            known: Any = made
            for node in known.get_nodes():
                if node.redis_connection:
                    close_idle(node.redis_connection.connection_pool)

    def command(self, *words: Any) -> Any:
        """Sends one command and returns its reply; raises its error."""
        if words[0] == "SCRIPT LOAD":
            return self.load(words[1:])
        (reply,) = self.pipeline([words])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, commands: Sequence[Command], replicas: Replicas | None = None) -> list[Any]:
        """
        Sends commands in one round trip to each server that has some of them; those for one slot stay in order.

        Returns:
            the reply or error of each, also an error of its connection: then nobody knows whether the command ran.
        """
        replies: dict[int, Any] = {}
        left: Mapping[int, Command] = dict(enumerate(commands))
        said: dict[int, Any] = {}
        if not self._places.acquire(timeout=within(self._patience)):
            raise redis.ConnectionError(f"no connection was free within {self._patience:g} s")
        try:
            for delay in (*self._delays, None):
                self._follow(left, replies, replicas, is_first=not replies and delay is not None)
                left = {number: command for number, command in left.items() if isinstance(replies[number], TRANSIENT)}
                if is_over():
                    replies |= {number: said[number] for number in left if number in said}
                    break  # what failed before says more than that there is no time
                if not left or delay is None:
                    break
                said = {number: replies[number] for number in left}
                time.sleep(within(delay * random.uniform(0.5, 1.5)) or 0)  # noqa: S311 (spreads load)
        finally:
            self._places.release()
        return [replies[number] for number in range(len(commands))]

    def load(self, sources: Iterable[str]) -> None:
        """Has every primary remember scripts. One that does not answer asks for them again when it does."""
        texts: list[Command] = [("SCRIPT", "LOAD", source) for source in sources]
        for node in self._nodes():
            with ServerPipeline(self._server(node), dict(enumerate(texts))) as pipeline:
                for reply in pipeline.read().values():
                    if isinstance(reply, ResponseError):
                        raise reply

    # ── one round trip, and slots that move ──────────────────────────────────────────────────────────────────────────

    def _follow(
        self, commands: Mapping[int, Command], replies: dict[int, Any], replicas: Replicas | None, *, is_first: bool
    ) -> None:
        asked: dict[int, ClusterNode] = {}
        for _ in range(REDIRECTIONS):
            replies.update(self._round(commands, asked, replicas, is_first=is_first))
            moved = {number: replies[number] for number in commands if isinstance(replies[number], AskError)}
            if not moved:
                break
            asked = self._redirected(moved)
            commands = {number: commands[number] for number in moved}
        if any(isinstance(reply, TIMEOUTS) for reply in replies.values()):
            self.leave()
        if any(isinstance(reply, (*TRANSIENT, AskError)) for reply in replies.values()):
            self.refresh()

    def _round(
        self,
        commands: Mapping[int, Command],
        asked: Mapping[int, ClusterNode],
        replicas: Replicas | None,
        *,
        is_first: bool,
    ) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        found: dict[int | None, ClusterNode | RedisError] = {}  # once for a slot, whose commands stay in order
        by_node: dict[str, tuple[ClusterNode, dict[int, Command]]] = {}
        slots = {number: slot_of(command) for number, command in commands.items()}
        # A command without a key goes with one that has one: so TIME is asked where the stamps were set.
        fallback = next((slot for slot in slots.values() if slot is not None), None)
        for number, own_slot in slots.items():
            slot = fallback if own_slot is None else own_slot
            if slot not in found:
                found[slot] = self._found(slot)
            node = asked.get(number) or found[slot]
            if isinstance(node, RedisError):
                replies[number] = node
            else:
                by_node.setdefault(node.name, (node, {}))[1][number] = commands[number]
        with contextlib.ExitStack() as stack:
            pipelines = [
                stack.enter_context(ServerPipeline(self._server(node), some, asked, replicas, is_first=is_first))
                for node, some in by_node.values()
            ]
            for pipeline in pipelines:
                replies.update(pipeline.read())
        return replies

    def _redirected(self, moved: Mapping[int, AskError]) -> dict[int, ClusterNode]:
        """Servers to ask, for once, for commands whose slots are on the move; what has moved is noted."""
        asked = {}
        manager: Any = self.cluster.nodes_manager
        for number, error in moved.items():
            if not isinstance(error, MovedError):
                known = manager.get_node(host=error.host, port=error.port)
                asked[number] = known or _node(error.host, error.port, "primary")
                continue
            try:
                _note_moved(manager, error)
            except KeyError:  # nobody had the slot so far
                self.refresh()
        return asked

    # ── topology ────────────────────────────────────────────────────────────────────────────────────────────────────

    def refresh(self) -> None:
        """Asks for the topology; a push waits for it only as long as it has time."""
        with contextlib.suppress(redis.TimeoutError):
            in_time(self._ask_topology)

    def _ask_topology(self) -> None:
        """When nobody answers that was in the last one, the URL's hosts are asked again."""
        if clock.monotonic() - self._refreshed_at < REFRESH_INTERVAL or not self._refreshing.acquire(blocking=False):
            return
        try:
            refresh: Callable[[], None] = self.cluster.nodes_manager.initialize
            refresh()
        except (RedisClusterException, RedisError):
            with self._making:
                self._made = None
        finally:
            self.losses += 1
            self._refreshed_at = clock.monotonic()
            self._refreshing.release()

    def _found(self, slot: int | None) -> ClusterNode | RedisError:
        try:
            return self._any_node() if slot is None else self._node_of(slot)
        except RedisError as error:
            return error

    def _node_of(self, slot: int) -> ClusterNode:
        with _as_redis_error():
            node: ClusterNode = self.cluster.nodes_manager.get_node_from_slot(slot)
            return node

    def _any_node(self) -> ClusterNode:
        return random.choice(self._nodes())  # noqa: S311 (any will do)

    def _nodes(self) -> list[ClusterNode]:
        cluster: Any = self.cluster
        primaries: list[ClusterNode] = cluster.get_primaries()
        if not primaries:
            raise redis.ConnectionError("the cluster has no primary")
        return primaries

    def _server(self, node: ClusterNode) -> redis.Redis:
        server = self.cluster.get_redis_connection(node)
        make_patient(server.connection_pool)
        return server


@contextlib.contextmanager
def _as_redis_error() -> Iterator[None]:
    """Raises a RedisError where redis-py, for an unknown topology, raises something else."""
    try:
        yield
    except RedisClusterException as error:
        if isinstance(error.__cause__, RedisError):
            raise error.__cause__ from None
        raise redis.ConnectionError(str(error)) from error


def _note_moved(manager: Any, error: MovedError) -> None:
    """Before redis-py 7.2 it notes one error, until a slot is looked up. Raises KeyError: no server had the slot."""
    if hasattr(manager, "move_slot"):
        manager.move_slot(error)
        return
    manager.update_moved_exception(error)
    try:
        manager.get_node_from_slot(error.slot_id)
    except KeyError:
        manager.update_moved_exception(None)
        raise
