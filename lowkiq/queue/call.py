"""Calls of scripts, sent several in one round trip; scripts are loaded again when Redis has lost them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from lowkiq import clock
from lowkiq.codec import error_text
from lowkiq.errors import (
    Fenced,
    Late,
    LowkiqError,
    Moved,
    Paused,
    Refused,
    ShardsCountMismatch,
    StaleClaim,
    Unsettled,
)  # fmt: skip
from lowkiq.queue import keys, scripts
from lowkiq.queue.senders import Sender, Senders, Stamp
from lowkiq.queue.unreadable import Met, is_another_type, of_another_type
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.server import Argument, Command, Replicas, Server

__all__ = ["CODES", "Argument", "Call", "Caller", "chunked", "pairs", "raise_first", "redis_time", "refusal"]

T = TypeVar("T")
K = TypeVar("K")

#: Shards that one script renews or looks at: ten thousand of them are twenty commands of about a millisecond.
SHARDS_A_CALL: Final = 500

#: Seconds within which a call that is applied once (senders.lua) may come: longer than any client goes on trying.
IN_TIME: Final = 60.0

#: A second key of a call on Cluster whose first is a prefix; no key ever has that name. While a slot moves from one
#: server to another, a script that names one key only would be sent on to the new one, and see there a shard of which
#: some keys have come and some have not: it would run on half a shard, and what it wrote would stop the move. With two
#: keys of which one is missing, both servers refuse it (TRYAGAIN) until the whole slot has moved.
GUARD: Final = "guard"

#: Code of a script's refusal → the exception of its text.
CODES: Final[Mapping[str, Callable[[str], LowkiqError]]] = {
    "FENCED": Fenced,
    "INVALID": Refused,
    "MOVING": keys.being_moved,
    "LAYOUT": ShardsCountMismatch,
    "RESHARDED": Moved,
    "LATE": Late,
    "NEWER": lambda text: keys.newer_layout(*text.split(" ")),
    "PAUSED": Paused,
    "STALE": StaleClaim,
    "UNSETTLED": Unsettled,
}

#: An error's code, which redis-py leaves in front of those that it does not know.
_CODED = re.compile(r"[A-Z]+ ")


class UnreadableReply(ResponseError):
    """A script has replied what can't be parsed: something in its shard was written by who is no Lowkiq."""


class Call(NamedTuple, Generic[T]):
    """A script with its keys and arguments, and how to parse its reply."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[Argument]
    parse: Callable[[Any], T]
    #: That of a call which is applied once, however often it is sent; it gets one as it is sent.
    stamp: Stamp | tuple[()] = ()


class Caller:
    """Sends calls through one client. Safe to share between threads."""

    def __init__(self, client: redis.Redis | ClusterClient) -> None:
        self.client = client
        self._server: Server | ClusterClient = client if isinstance(client, ClusterClient) else Server(client)
        #: A plain command. Untyped in redis-py, whose replies have the types of Redis's own documentation.
        self.command: Callable[..., Any] = self._server.command
        #: Closes idle connections; they are opened again when they are needed.
        self.leave: Callable[[], None] = self._server.leave
        #: True if shards are spread over the servers of a cluster: then one call can't be for several of them.
        self.is_spread = isinstance(client, ClusterClient)
        #: The connections to the one server that has all shards; None where there are several, or others stand between.
        self.connections = self._server.connections
        #: Shards that one call may be for. On Cluster nearly every shard has a slot of its own.
        self.shards_a_call = 1 if self.is_spread else SHARDS_A_CALL
        #: Who sends what is applied once.
        self.senders = Senders(self.command)
        #: What was met in Redis, through this caller, that can't be read.
        self.met = Met()
        self._scripts: dict[str, scripts.Script] | None = None
        self._loading = threading.Lock()

    @property
    def losses(self) -> int:
        """
        Rises whenever a connection was lost, with which the server at its end may have changed: what was read before
        may be more than is there now.
        """
        return self._server.losses

    def close(self) -> None:
        """Closes the connections; the next use opens new ones."""
        self.client.close()
        if not isinstance(self.client, ClusterClient):
            self.client.connection_pool.disconnect()

    def run(self, call: Call[T]) -> T:
        """Sends one call and returns its parsed reply; raises its refusal."""
        result: T = raise_first(self.run_all([call]))[0]
        return result

    def run_all(self, calls: Sequence[Call[Any]], replicas: Replicas | None = None) -> list[Any]:
        """
        Sends calls in one round trip, in order; each may take effect or be refused alone. With `replicas`, a call whose
        effect too few replicas have is an error: NotReplicated.

        Returns:
            for each call its parsed reply, or the exception that it would have raised. An error of the connection is
            raised, and then nobody knows which calls took effect; on Cluster, with a connection to each server, it
            stands in place of the replies from that server.
        """
        if not calls:
            return []
        known = self._scripts or self._choose()
        once = [n for n, call in enumerate(calls) if known[call.script].is_once and not call.stamp]
        if once:
            return self._run_once(calls, once, replicas)
        replies = self._server.pipeline([self.command_of(call) for call in calls], replicas)
        if NoScriptError in map(type, replies):
            again = _lost(calls, replies)
            # All scripts at once: each one that is lost alone makes calls after it be sent twice.
            self._server.load(script.source for script in self._choose().values())
            repeated = self._server.pipeline([self.command_of(calls[number], whole=True) for number in again], replicas)
            for number, reply in zip(again, repeated, strict=True):
                replies[number] = reply
        return list(map(_meaning, calls, replies))

    def _run_once(self, calls: Sequence[Call[Any]], once: Sequence[int], replicas: Replicas | None) -> list[Any]:
        """The same where some are applied once: each of these gets a stamp, of a sender of its own."""
        self.senders.look()
        senders = {n: self.senders.take() for n in once}
        try:
            stamped = list(calls)
            for n, sender in senders.items():
                stamped[n] = self._stamped(calls[n], sender)
            results = self.run_all(stamped, replicas)
            if late := [n for n in once if isinstance(results[n], Late)]:  # Redis's clock has jumped ahead
                self.senders.learn()
                again = [self._stamped(calls[n], senders[n]) for n in late]
                for n, result in zip(late, self.run_all(again, replicas), strict=True):
                    results[n] = result
            return results
        finally:
            for sender in senders.values():
                sender.give_back()

    def _stamped(self, call: Call[Any], sender: Sender) -> Call[Any]:
        return call._replace(stamp=self.senders.stamp(sender, clock.monotonic() + IN_TIME))

    def commands(self, commands: Sequence[Command]) -> list[Any]:
        """Sends plain commands in one round trip; raises the first error among their replies."""
        return raise_first(self._server.pipeline(commands) if commands else [])

    def read(self, commands: Sequence[Command], otherwise: Any) -> list[Any]:
        """The same of reads; a key of another type than it should be is told of, and reads as `otherwise`."""
        replies = self._server.pipeline(commands) if commands else []
        for number, (command, reply) in enumerate(zip(commands, replies, strict=True)):
            is_wrong, key = is_another_type(reply), command[1] if len(command) > 1 else ""
            key = key if isinstance(key, bytes) else str(key)
            self.met.tell(f"type of {key!r}", [of_another_type(key)] if is_wrong else [])
            if is_wrong:
                replies[number] = otherwise
        return raise_first(replies)

    def command_of(self, call: Call[Any], *, whole: bool = False) -> Command:
        """The command that runs a call; with `whole` by the script's text, however often somebody flushes scripts."""
        script = (self._scripts or self._choose())[call.script]
        head = ("EVAL", script.source) if whole else ("EVALSHA", script.sha)
        if self.is_spread and call.keys[0].endswith(":"):
            return (*head, len(call.keys) + 1, *call.keys, call.keys[0] + GUARD, *call.arguments, *call.stamp)
        return (*head, len(call.keys), *call.keys, *call.arguments, *call.stamp)

    def _choose(self) -> dict[str, scripts.Script]:
        with self._loading:
            if self._scripts is None:
                self._scripts = scripts.load(flags=self.knows_flags())
            return self._scripts

    def knows_flags(self) -> bool:
        """Asks the server whether it knows script flags: a version number would not tell for all servers."""
        try:
            self.command("EVAL", scripts.PROBE, 0)
        except ResponseError as error:
            # One that can't read the flags has no code; BUSY, NOPERM and the like say nothing about them.
            if type(error) is not ResponseError or _CODED.match(str(error)):
                raise
            return False
        return True


def redis_time(caller: Caller) -> float:
    """Unix time by Redis's clock."""
    seconds, microseconds = caller.command("TIME")
    return float(seconds + microseconds / 1e6)


def raise_first(results: list[Any]) -> list[Any]:
    """The results, if none of them is an exception; else raises the first."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most `size` items, each for one call or one round trip."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def grouped(rows: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Each key with its values, in their order."""
    found: dict[K, list[T]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


def pairs(reply: Sequence[Any]) -> list[tuple[bytes, Any]]:
    """Members with their scores. A client that speaks RESP3 gets them in pairs already."""
    if reply and not isinstance(reply[0], bytes):
        return [(member, score) for member, score in reply]
    return list(zip(reply[::2], reply[1::2], strict=True))


def _lost(calls: Sequence[Call[Any]], replies: Sequence[Any]) -> list[int]:
    """Calls whose script is lost, and all that follow one in its shard: somebody may load the scripts in between."""
    lost: list[int] = []
    shards: set[str] = set()
    for number, (call, reply) in enumerate(zip(calls, replies, strict=True)):
        if isinstance(reply, NoScriptError) or not shards.isdisjoint(call.keys):
            lost.append(number)
            shards.update(call.keys)
    return lost


def refusal(error: str, otherwise: ResponseError | None = None) -> Exception:
    """The exception that a script's error stands for; one without a code of ours is Redis's own."""
    code, _, text = error.partition(" ")
    return CODES[code](text) if code in CODES else otherwise or ResponseError(error)


def _meaning(call: Call[Any], reply: Any) -> Any:
    """The parsed reply to a call, or the exception that the reply stands for."""
    if isinstance(reply, ResponseError):
        return refusal(str(reply), reply)
    if isinstance(reply, RedisError):
        return reply
    try:
        return call.parse(reply)
    except Exception as error:  # noqa: BLE001 (anybody may write to Redis, and a reply stands for one shard of many)
        return UnreadableReply(f"{call.script} of {call.keys[0]} has replied what can't be read: {error_text(error)}")
