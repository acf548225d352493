"""
What the person asked for: options and environment, validated once, before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lowkiq_supervisor import parsing
from lowkiq_supervisor.errors import UsageError
from lowkiq_supervisor.parsing import given
from lowkiq_supervisor.restart_policy import RestartMode
from lowkiq_supervisor.web_options import WebOptions

#: Seconds running jobs have to finish; the same default as the library's, and below Kubernetes' 30 s.
DEFAULT_DRAIN_TIMEOUT = 25.0
#: Seconds without a beat, of which a node sends one a second, after which it counts as hung.
DEFAULT_HANG_TIMEOUT = 30.0
#: The same for a node that has not been ready yet: imports of large applications don't beat.
DEFAULT_BOOT_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Validated options; `Options.resolve` makes them from what was given."""

    app: str
    nodes: int = 1
    #: Number of the first node here; the others follow.
    first_node: int = 0
    #: How many nodes there are on all machines together.
    number_of_nodes: int = 1
    burst: bool = False
    drain_timeout: float = DEFAULT_DRAIN_TIMEOUT
    restart: RestartMode = RestartMode.ALWAYS
    degraded: bool = False
    #: Import the application once, here, before the nodes are forked.
    preload: bool = False
    #: Seconds of silence; 0 is for ever.
    hang_timeout: float = DEFAULT_HANG_TIMEOUT
    boot_timeout: float = DEFAULT_BOOT_TIMEOUT
    #: Above these a node is recycled: bytes, ended jobs, seconds.
    max_rss: int | None = None
    max_jobs: int | None = None
    max_age: float | None = None
    state_dir: Path = field(default_factory=lambda: Path(".lowkiq"))
    #: None: nobody named a Redis, so the supervisor brings its own.
    redis_url: str | None = None
    #: None: no web view is wanted.
    web: WebOptions | None = None

    @classmethod
    def resolve(
        cls,
        *,
        app: str,
        nodes: int = 1,
        node_number: str | None = None,
        number_of_nodes: str | None = None,
        burst: bool = False,
        drain_timeout: str | None = None,
        restart: RestartMode = RestartMode.ALWAYS,
        degraded: bool = False,
        preload: bool = False,
        hang_timeout: str | None = None,
        boot_timeout: str | None = None,
        max_rss: str | None = None,
        max_jobs: str | None = None,
        max_age: str | None = None,
        state_dir: str | None = None,
        web: str | None = None,
        web_read_only: bool = False,
        web_payloads: bool = True,
        web_no_auth: bool = False,
        environ: Mapping[str, str],
    ) -> Options:
        """
        Options as given, else from the environment, else defaults.

        Raises:
            UsageError: a value is wrong or two don't fit together; the message says which and what to do.
        """
        if nodes < 1:
            raise UsageError(f"--nodes {nodes}: at least one node is needed")
        ordinal = parsing.ordinal(given("--node-number", node_number, environ, "NODE_NUMBER"))
        declared = parsing.total(given("--number-of-nodes", number_of_nodes, environ, "NUMBER_OF_NODES"))
        first, total = _numbers(nodes, ordinal, declared)
        return cls(
            app=app,
            nodes=nodes,
            first_node=first,
            number_of_nodes=total,
            burst=burst,
            drain_timeout=parsing.seconds(given("--drain-timeout", drain_timeout, environ), DEFAULT_DRAIN_TIMEOUT),
            restart=restart,
            degraded=degraded,
            preload=preload,
            hang_timeout=parsing.seconds(given("--hang-timeout", hang_timeout, environ), DEFAULT_HANG_TIMEOUT),
            boot_timeout=parsing.seconds(given("--boot-timeout", boot_timeout, environ), DEFAULT_BOOT_TIMEOUT),
            max_rss=parsing.size(given("--max-rss", max_rss, environ)),
            max_jobs=parsing.count(given("--max-jobs", max_jobs, environ)),
            max_age=parsing.duration(given("--max-age", max_age, environ)),
            state_dir=find_state_dir(state_dir, environ),
            redis_url=environ.get("LOWKIQ_REDIS_URL") or environ.get("REDIS_URL") or None,
            web=WebOptions.resolve(
                web, read_only=web_read_only, payloads=web_payloads, no_auth=web_no_auth, environ=environ
            ),
        )

    def node_environment(self) -> dict[str, str]:
        """What nodes find in their environment besides the supervisor's own."""
        return {"LOWKIQ_DRAIN_TIMEOUT": f"{self.drain_timeout:g}", "LOWKIQ_STATE_DIR": str(self.state_dir)}


def find_state_dir(given: str | None, environ: Mapping[str, str]) -> Path:
    """The directory where the supervisor keeps its socket and its Redis: the same for all commands."""
    # systemd separates several runtime directories by colons; the first is the main one.
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(given or environ.get("LOWKIQ_STATE_DIR") or runtime or ".lowkiq").absolute()


def _numbers(nodes: int, ordinal: tuple[int, str] | None, total: tuple[int, str] | None) -> tuple[int, int]:
    """The first node's number and the number of all nodes. Refuses what would leave shards without a node."""
    if total is None:
        if ordinal is not None and ordinal[0] > 0:
            raise UsageError(f"{ordinal[1]} says that there are other machines: set NUMBER_OF_NODES to all their nodes")
        return 0, nodes
    if ordinal is None:
        if total[0] == nodes:
            return 0, nodes
        raise UsageError(
            f"{total[1]}, but --nodes {nodes} run here: set NODE_NUMBER to this machine's number (from 0), "
            f"or NUMBER_OF_NODES to {nodes} if it is the only one"
        )
    first = ordinal[0] * nodes
    if first + nodes > total[0]:
        raise UsageError(
            f"{ordinal[1]} with --nodes {nodes} runs nodes {first} to {first + nodes - 1}, but {total[1]} allows 0 to "
            f"{total[0] - 1}: NUMBER_OF_NODES counts the nodes of all machines (machines times --nodes)"
        )
    return first, total[0]
