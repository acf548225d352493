"""
One frozen object of settings, validated once. A keyword wins over the environment (LOWKIQ_ and the name in capitals),
which wins over the default.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lowkiq import codec
from lowkiq.errors import SettingsError, short, unknown_option
from lowkiq.hooks import Middleware, Scheduler, Splitter

if TYPE_CHECKING:
    import redis

DEFAULT_URL: Final = "redis://localhost:6379/0"
#: Where the supervisor's embedded Redis listens, within its state directory.
EMBEDDED_SOCKET: Final = "/redis/redis.sock"
NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set of an application."""

    #: Of a server, Sentinel or Cluster: docs/redis.md. Also read from REDIS_URL; without either, the supervisor's
    #: embedded Redis. It may have a password, so it is not shown.
    redis_url: str = dataclasses.field(default=DEFAULT_URL, repr=False)
    #: Makes a client instead of redis_url, e.g. a fakeredis one for tests.
    redis: Callable[[], redis.Redis] | None = None
    #: What every key begins with.
    namespace: str = "lowkiq"
    #: Seconds between looks at shards that nobody has rung for: the safety net under the doorbell.
    poll_interval: float = 1.0
    threads_per_node: int = 5
    #: Connections for pushing, queries and actions.
    client_pool_size: int = 5
    #: Seconds to wait for one of them.
    pool_timeout: float = 5.0
    #: Replicas that must have a push before it counts as accepted.
    wait_replicas: int = 0
    #: Seconds that they get for it.
    wait_timeout: float = 1.0
    #: Seconds after which a node that does not renew loses its shards.
    lease_ttl: float = 15.0
    #: Seconds of work that one claim takes, if the jobs are short enough for more than a batch.
    claim_window: float = 0.05
    #: Deaths of a node after which the job it ran goes to the morgue.
    max_crashes: int = 3
    #: Payloads of one id that are handed to one perform.
    max_payloads: int = 1_000
    max_payload_bytes: int = 1 << 20
    max_id_bytes: int = 512
    #: Seconds that running jobs get when a node is asked to stop.
    drain_timeout: float = 25.0
    server_middlewares: Sequence[Middleware] = ()
    client_middlewares: Sequence[Middleware] = ()
    #: Called once in each node before it starts its threads.
    on_server_init: Callable[[], object] | None = None
    #: Called with the exception that stops a node.
    last_words: Callable[[BaseException], object] | None = None
    #: `(node_number, number_of_nodes, threads_per_node)` → Splitter.
    build_splitter: Callable[[int, int, int], Splitter] | None = None
    #: Makes the scheduler of a thread.
    build_scheduler: Callable[[], Scheduler[Any]] | None = None
    dump_payload: Callable[[Any], bytes | str] = codec.dump_payload
    load_payload: Callable[[bytes], Any] = codec.load_payload
    #: Error → text to keep.
    format_error: Callable[[BaseException], str] = codec.format_error
    #: Text to keep → text as stored (compressed, say), and back.
    dump_error: Callable[[str], str] = codec.identity
    load_error: Callable[[str], str] = codec.identity

    def __post_init__(self) -> None:
        for name, (kind, low, high) in _RANGES.items():
            _check_number(name, getattr(self, name), kind, low, high)
        for name in _HOOKS:
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise SettingsError(f"{name} must be callable, not {short(getattr(self, name))}")
        for name in ("server_middlewares", "client_middlewares"):
            value = getattr(self, name)
            if not isinstance(value, Sequence) or not all(map(callable, value)):
                raise SettingsError(f"{name} must be a list of callables (worker, batch, call), not {short(value)}")
        if not isinstance(self.namespace, str) or not NAME.fullmatch(self.namespace):
            raise SettingsError(f"namespace {short(self.namespace)} must match {NAME.pattern}")
        if self.redis is None:
            from lowkiq.redis_url import parse  # noqa: PLC0415 (the store knows settings, not the reverse)

            parse(self.redis_url)


_HOOKS: Final = (
    "redis",
    "on_server_init",
    "last_words",
    "build_splitter",
    "build_scheduler",
    "dump_payload",
    "load_payload",
    "format_error",
    "dump_error",
    "load_error",
)

_RANGES: Final[Mapping[str, tuple[type, float, float]]] = {
    "poll_interval": (float, 0.01, 3600),
    "threads_per_node": (int, 1, 1000),
    "client_pool_size": (int, 1, 10_000),
    "pool_timeout": (float, 0.001, 3600),
    "wait_replicas": (int, 0, 100),
    # A reply is waited for ten seconds.
    "wait_timeout": (float, 0.001, 8),
    # A third of it is the time between renewals, which must be long beside a round trip.
    "lease_ttl": (float, 0.3, 3600),
    "claim_window": (float, 0.001, 60),
    "max_crashes": (int, 1, 1_000_000),
    "max_payloads": (int, 1, 1_000),
    "max_payload_bytes": (int, 1, 256 << 20),
    "max_id_bytes": (int, 1, 65_536),
    "drain_timeout": (float, 0, 86_400),
}


def _check_number(name: str, value: Any, kind: type, low: float, high: float) -> None:
    accepted = int if kind is int else int | float
    if isinstance(value, bool) or not isinstance(value, accepted) or value != value:  # noqa: PLR0124 (NaN)
        raise SettingsError(f"{name} must be a{'n integer' if kind is int else ' number'}, not {value!r}")
    if not low <= value <= high:
        raise SettingsError(f"{name} is {short(value)}, it must be from {low:g} to {high:g}")


def build(keywords: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """
    Settings from keywords, else the environment, else defaults.

    Raises:
        SettingsError: names the option, its value and what it may be.
    """
    environment = os.environ if environment is None else environment
    known = {option.name: option for option in dataclasses.fields(Settings)}
    for name in keywords:
        if name not in known:
            raise unknown_option("option", name, known)
    values = {
        name: _from_text(f"LOWKIQ_{name.upper()}", environment[f"LOWKIQ_{name.upper()}"], _RANGES[name][0])
        for name in _RANGES
        if environment.get(f"LOWKIQ_{name.upper()}")
    }
    if environment.get("LOWKIQ_NAMESPACE"):
        values["namespace"] = environment["LOWKIQ_NAMESPACE"]
    values["redis_url"] = find_redis_url(environment)
    if keywords.get("redis_url", "") is None:  # Lowkiq(redis_url=os.environ.get(...)) names none
        keywords = {name: value for name, value in keywords.items() if name != "redis_url"}
    return Settings(**(values | dict(keywords)))


def _from_text(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise SettingsError(f"{name} must be a{'n integer' if kind is int else ' number'}, not {text!r}") from None


def find_redis_url(environment: Mapping[str, str]) -> str:
    """The URL from the environment, else of the embedded Redis of the state directory, else the usual one."""
    given = environment.get("LOWKIQ_REDIS_URL") or environment.get("REDIS_URL")
    if given:
        return given
    directory = state_directory(environment) / "redis"
    # The directory decides, not the socket: while the embedded Redis is down, jobs must not go to another one.
    if not directory.is_dir():
        return DEFAULT_URL
    return f"unix://{quote(str(directory.parent.resolve()))}{EMBEDDED_SOCKET}"


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where a supervisor keeps its socket, its dumps and the embedded Redis."""
    # systemd separates several by colons; the first is the service's own.
    runtime = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(environment.get("LOWKIQ_STATE_DIR") or runtime or ".lowkiq")
