"""A call of a script, and how calls are sent: several in one round trip, scripts loaded when Redis has lost them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from lowkiq.errors import Fenced, LowkiqError, ShardsCountMismatch, StaleClaim, Unsettled
from lowkiq.store import layout, scripts

T = TypeVar("T")
Argument = str | bytes | int | float

#: Code of a script's refusal → the exception of its text.
CODES: Final[Mapping[str, Callable[[str], LowkiqError]]] = {
    "FENCED": Fenced,
    "LAYOUT": ShardsCountMismatch,
    "NEWER": lambda text: layout.newer(*text.split(" ")),
    "STALE": StaleClaim,
    "UNSETTLED": Unsettled,
}


class Call(NamedTuple, Generic[T]):
    """A script with its keys and arguments, and what its reply means."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[Argument]
    parse: Callable[[Any], T]


class Caller:
    """Sends calls through one client. Safe to share between threads."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        #: A plain command. Untyped in redis-py, whose replies have the types of Redis's own documentation.
        self.command: Callable[..., Any] = client.execute_command
        self._scripts: dict[str, scripts.Script] | None = None
        self._loading = threading.Lock()

    def run(self, call: Call[T]) -> T:
        """Sends one call and returns what it means; raises its refusal."""
        command = self._command(call)
        try:
            return call.parse(self.command(*command))
        except NoScriptError:
            self._load()
        except ResponseError as error:
            raise _refusal(error) from None
        return self._once_more(call)

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """
        Sends calls in one round trip, in order; each may take effect or be refused alone.

        Returns:
            for each call what it means, or the exception that it would have raised. An error of the connection is
            raised, and then nothing is known of any of them.
        """
        if not calls:
            return []
        replies = self._pipeline(calls)
        lost = next((index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)), None)
        if lost is not None:
            self._load()
            # All from there on, to keep their order: another client may have loaded the scripts in between.
            replies[lost:] = self._pipeline(calls[lost:])
        return [_meaning(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def commands(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """Sends plain commands in one round trip; raises the first error among their replies."""
        return raise_first(self._send(commands) if commands else [])

    def _send(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        with self.client.pipeline(transaction=False) as pipeline:
            add: Callable[..., Any] = pipeline.execute_command
            for command in commands:
                add(*command)
            return list(pipeline.execute(raise_on_error=False))

    def _once_more(self, call: Call[T]) -> T:
        try:
            return call.parse(self.command(*self._command(call)))
        except ResponseError as error:
            raise _refusal(error) from None

    def _pipeline(self, calls: Sequence[Call[Any]]) -> list[Any]:
        if len(calls) == 1:
            return [self._alone(calls[0])]
        return self._send([self._command(call) for call in calls])

    def _alone(self, call: Call[Any]) -> Any:
        try:
            return self.command(*self._command(call))
        except ResponseError as error:
            return error

    def _command(self, call: Call[Any]) -> tuple[Argument, ...]:
        sha = (self._scripts or self._choose())[call.script].sha
        return ("EVALSHA", sha, len(call.keys), *call.keys, *call.arguments)

    def _choose(self) -> dict[str, scripts.Script]:
        """Asks the server once whether it knows script flags: a version number would not tell for all servers."""
        with self._loading:
            if self._scripts is None:
                try:
                    self.command("EVAL", scripts.PROBE, 0)
                    self._scripts = scripts.load(flags=True)
                except redis.ConnectionError:
                    raise
                except ResponseError:
                    self._scripts = scripts.load(flags=False)
            return self._scripts

    def _load(self) -> None:
        for script in self._choose().values():
            self.command("SCRIPT LOAD", script.source)


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
    """Lists of at most `size` items: what one call, or one round trip, may hold."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def pairs(reply: Sequence[Any]) -> list[tuple[bytes, Any]]:
    """Members with their scores, which a client that speaks RESP3 gets in pairs already."""
    if reply and not isinstance(reply[0], bytes):
        return [(member, score) for member, score in reply]
    return list(zip(reply[::2], reply[1::2], strict=True))


def _meaning(call: Call[Any], reply: Any) -> Any:
    if isinstance(reply, ResponseError):
        return _refusal(reply)
    return reply if isinstance(reply, RedisError) else call.parse(reply)


def _refusal(error: ResponseError) -> LowkiqError | ResponseError:
    code, _, text = str(error).partition(" ")
    return CODES[code](text) if code in CODES else error
