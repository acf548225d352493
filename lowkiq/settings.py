"""One frozen object of settings. A keyword wins over the environment (LOWKIQ_NAME), which wins over the default."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, get_origin, get_type_hints
from urllib.parse import quote

import redis

from lowkiq import codec
from lowkiq.environment import MOST_THREADS, find_redis_url, state_directory
from lowkiq.errors import SettingsError, UsageError, short, unknown_option
from lowkiq.fewer import Equal, check_equal
from lowkiq.hooks import Middleware, Scheduler, Splitter
from lowkiq.process.own_files import foreign_owner
from lowkiq.process.place import EMBEDDED_SOCKET
from lowkiq.redis_url import parse

DEFAULT_URL: Final = "redis://localhost:6379/0"
NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
#: That of a queue: no "." or "..", which as a part of a path mean another one.
QUEUE_NAME: Final = re.compile(rf"(?!\.{{1,2}}\Z){NAME.pattern}")

T = TypeVar("T")


class Range(NamedTuple):
    """Bounds of a number."""

    low: float
    high: float

    def __call__(self, name: str, value: Any, kind: type) -> None:
        accepted = int if kind is int else int | float
        if isinstance(value, bool) or not isinstance(value, accepted) or value != value:  # noqa: PLR0124 (NaN)
            raise SettingsError(f"{name} must be a{'n integer' if kind is int else ' number'}, not {value!r}")
        if not self.low <= value <= self.high:
            raise SettingsError(f"{name} is {short(value)}, it must be from {self.low:g} to {self.high:g}")


def _check_name(name: str, value: Any, _: type) -> None:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise SettingsError(f"{name} {short(value)} must match {NAME.pattern}")


def _check_flag(name: str, value: Any, _: object) -> None:
    if not isinstance(value, bool):
        raise SettingsError(f"{name} must be True or False, not {short(value)}")


def _check_hook(name: str, value: Any, _: object) -> None:
    if value is not None and not callable(value):
        raise SettingsError(f"{name} must be callable, not {short(value)}")


def _check_middlewares(name: str, value: Any, _: object) -> None:
    if not isinstance(value, Sequence) or not all(map(callable, value)):
        raise SettingsError(f"{name} must be a list of callables (worker, batch, call), not {short(value)}")


def _check_equal(name: str, value: Any, _: object) -> None:
    check_equal(name, value)


Hook = Annotated[T, _check_hook]
Middlewares = Annotated[Sequence[Middleware], _check_middlewares]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set of an application. Numbers and the namespace can come from the environment too."""

    #: Of a server, Sentinel or Cluster: docs/redis.md. Also read from REDIS_URL; without either, the supervisor's
    #: embedded Redis. It may have a password, so it is not shown.
    redis_url: str = dataclasses.field(default=DEFAULT_URL, repr=False)
    #: Makes a client instead of redis_url, e.g. a fakeredis one for tests.
    redis: Hook[Callable[[], redis.Redis] | None] = None
    #: What every key begins with.
    namespace: Annotated[str, _check_name] = "lowkiq"
    #: Seconds between polls of shards that nobody has rung for: the safety net under the doorbell.
    poll_interval: Annotated[float, Range(0.01, 3600)] = 1.0
    #: The option --threads wins over it.
    threads_per_node: Annotated[int, Range(1, MOST_THREADS)] = 5
    #: Connections for pushing, queries and actions.
    client_pool_size: Annotated[int, Range(1, 10_000)] = 5
    #: Seconds to wait for one of them.
    pool_timeout: Annotated[float, Range(0.001, 3600)] = 5.0
    #: Seconds that a push, awaited or not, waits for an answer of Redis: for a connection and repetitions too.
    push_timeout: Annotated[float, Range(0.01, 3600)] = 5.0
    #: Replicas that must have a push before it counts as accepted.
    wait_replicas: Annotated[int, Range(0, 100)] = 0
    #: Seconds that they get for it. A reply is waited for ten seconds.
    wait_timeout: Annotated[float, Range(0.001, 8)] = 1.0
    #: Seconds after which a node that does not renew loses its shards. It renews three times as often, and the time
    #: between must be long beside a round trip.
    lease_ttl: Annotated[float, Range(0.3, 3600)] = 15.0
    #: Seconds of work that one claim takes, if the jobs are short enough for more than a batch.
    claim_window: Annotated[float, Range(0.001, 60)] = 0.05
    #: Deaths of a node after which the job it ran goes to the morgue.
    max_crashes: Annotated[int, Range(1, 1_000_000)] = 3
    #: Payloads of one id that are handed to one perform.
    max_payloads: Annotated[int, Range(1, 1_000)] = 1_000
    max_payload_bytes: Annotated[int, Range(1, 256 << 20)] = 1 << 20
    max_id_bytes: Annotated[int, Range(1, 65_536)] = 512
    #: The place of an equal payload that is pushed again while its id is queued, for workers that do not say: that of
    #: its latest push, or "first", as the original Lowkiq has it.
    equal: Annotated[Equal, _check_equal] = "last"
    #: Seconds that running jobs get when a node is asked to stop.
    drain_timeout: Annotated[float, Range(0, 86_400)] = 25.0
    #: Seconds by which the oldest due job of a queue may be late before that is an alert. Of this and what follows, 0
    #: turns the alert off.
    alert_lag: Annotated[float, Range(0, 31_536_000)] = 60.0
    #: Share of the tries of the last minutes that may fail, of ten at least.
    alert_failing: Annotated[float, Range(0, 1)] = 0.5
    #: Jobs of a queue that may go to the morgue within an hour.
    alert_morgue: Annotated[int, Range(0, 1_000_000_000)] = 5
    #: How many times as long as 99 of 100 of its queue a batch may run.
    alert_long: Annotated[float, Range(0, 1_000_000)] = 5.0
    #: Share of Redis's maxmemory that may be used.
    alert_memory: Annotated[float, Range(0, 1)] = 0.8
    #: 1: a Redis that keeps no append-only file, or syncs it seldom, is an alert.
    alert_persistence: Annotated[int, Range(0, 1)] = 1
    #: Nodes work with a Redis that, when memory is full, throws away what expires: jobs don't, but limits do.
    volatile_eviction: Annotated[bool, _check_flag] = False
    #: Spans and metrics for OpenTelemetry, which is an extra: lowkiq[otel].
    telemetry: Annotated[bool, _check_flag] = False
    server_middlewares: Middlewares = ()
    client_middlewares: Middlewares = ()
    #: Called once in each node before it starts its threads.
    on_server_init: Hook[Callable[[], object] | None] = None
    #: Called once in each node and helper that has begun, after its last job, within what is left of drain_timeout.
    on_server_stop: Hook[Callable[[], object] | None] = None
    #: Called in the supervisor before each fork of a node, with --preload only: without, it doesn't know the app.
    before_fork: Hook[Callable[[], object] | None] = None
    #: Called once in each node, in its main thread, when it is ready.
    node_started: Hook[Callable[[], object] | None] = None
    #: Called with the reason when a supervisor's node has ended, in a process of its own that has ten seconds.
    node_ended: Hook[Callable[[str], object] | None] = None
    #: Called with the exception that stops a node.
    last_words: Hook[Callable[[BaseException], object] | None] = None
    #: `(node_number, number_of_nodes, threads_per_node)` → Splitter.
    build_splitter: Hook[Callable[[int, int, int], Splitter] | None] = None
    #: Makes the scheduler of a thread.
    build_scheduler: Hook[Callable[[], Scheduler[Any]] | None] = None
    dump_payload: Hook[Callable[[Any], bytes | str]] = codec.dump_payload
    load_payload: Hook[Callable[[bytes], Any]] = codec.load_payload
    #: Frames that are kept of an error; 0: only its type and message.
    traceback_frames: Annotated[int, Range(0, 100)] = 20
    #: Error → text to keep, in place of its type, message and traceback.
    format_error: Hook[Callable[[BaseException], str]] = codec.format_error
    #: Text to keep → text as stored (compressed, say), and back.
    dump_error: Hook[Callable[[str], str]] = codec.identity
    load_error: Hook[Callable[[str], str]] = codec.identity

    def __post_init__(self) -> None:
        for name, (kind, check) in _RULES.items():
            check(name, getattr(self, name), kind)
        if self.redis is None:
            parse(self.redis_url)


if TYPE_CHECKING:

    @dataclass(frozen=True, kw_only=True)
    class Keywords(Settings):
        """Settings as an application is given them: of a redis_url that is None the environment tells."""

        redis_url: str | None = None  # type: ignore[assignment]


#: Flags as the environment has them.
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
#: Setting → its type, and the check of its value.
_RULES: Final[Mapping[str, tuple[Any, Callable[[str, Any, Any], None]]]] = {
    name: (hint.__origin__, hint.__metadata__[0])
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    if get_origin(hint) is Annotated
}


def build(keywords: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """
    Settings from keywords, else the environment, else defaults.

    Raises:
        SettingsError: names the option, its value and what it may be.
    """
    environment = os.environ if environment is None else environment
    known = [option.name for option in dataclasses.fields(Settings)]
    for name in keywords:
        if name not in known:
            raise unknown_option("option", name, known)
    if keywords.get("redis_url", "") is None:  # Lowkiq(redis_url=os.environ.get(...)) names none
        keywords = {name: value for name, value in keywords.items() if name != "redis_url"}
    values: dict[str, Any] = {} if "redis_url" in keywords else {"redis_url": _redis_url(environment, keywords)}
    for name, (kind, check) in _RULES.items():
        variable = f"LOWKIQ_{name.upper()}"
        if kind in {int, float, str, bool} and name not in keywords and (text := environment.get(variable)):
            values[name] = _from_text(variable, text, kind)
            try:
                check(name, values[name], kind)
            except SettingsError as error:
                raise UsageError(f"{variable}: {error}") from None
    return Settings(**values, **keywords)


def _from_text(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise UsageError(f"{name} must be true or false, or 1 or 0, not {text!r}")
        return _FLAGS[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{name} must be a{'n integer' if kind is int else ' number'}, not {text!r}") from None


def _redis_url(environment: Mapping[str, str], keywords: Mapping[str, Any]) -> str:
    """The URL from the environment, else of the embedded Redis of the state directory, else the usual one."""
    if found := find_redis_url(environment):
        try:
            if keywords.get("redis") is None:
                parse(found.text)
        except SettingsError as error:
            raise UsageError(f"{found.source}: {error}") from None
        return found.text
    directory = state_directory(environment) / "redis"
    # The directory decides, not the socket: while the embedded Redis is down, jobs must not go to another one.
    if not directory.is_dir():
        return DEFAULT_URL
    for path in (directory.parent, directory):
        _refuse_another_user_s(path)
    return f"unix://{quote(str(directory.parent.resolve()))}{EMBEDDED_SOCKET}"


def _refuse_another_user_s(path: Path) -> None:
    """As the supervisor does: a Redis that somebody runs there would be sent all jobs, and have its own performed."""
    if (owner := foreign_owner(path)) is not None:
        raise SettingsError(
            f"the state directory {path} belongs to user {owner}, and this is user {os.geteuid()}: set "
            "LOWKIQ_REDIS_URL, or LOWKIQ_STATE_DIR to a directory of your own"
        )
