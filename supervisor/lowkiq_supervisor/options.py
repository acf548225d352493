"""
What the person asked for: options and environment, validated once, before anything is started.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lowkiq_supervisor.errors import UsageError
from lowkiq_supervisor.restart_policy import RestartMode

#: Seconds running jobs have to finish; the same default as the library's, and below Kubernetes' 30 s.
DEFAULT_DRAIN_TIMEOUT = 25.0

#: An ordinal, or a name that ends in one, such as a StatefulSet's pod: `jobs-3`.
_ORDINAL = re.compile(r"(?:.+-)?(\d{1,9})")


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
    state_dir: Path = field(default_factory=lambda: Path(".lowkiq"))
    #: None: nobody named a Redis, so the supervisor brings its own.
    redis_url: str | None = None

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
        state_dir: str | None = None,
        environ: Mapping[str, str],
    ) -> Options:
        """
        Options as given, else from the environment, else defaults.

        Raises:
            UsageError: a value is wrong or two don't fit together; the message says which and what to do.
        """
        if nodes < 1:
            raise UsageError(f"--nodes {nodes}: at least one node is needed")
        ordinal = _ordinal(_given("--node-number", node_number, environ, "NODE_NUMBER"))
        declared = _total(_given("--number-of-nodes", number_of_nodes, environ, "NUMBER_OF_NODES"))
        first, total = _numbers(nodes, ordinal, declared)
        return cls(
            app=app,
            nodes=nodes,
            first_node=first,
            number_of_nodes=total,
            burst=burst,
            drain_timeout=_seconds(_given("--drain-timeout", drain_timeout, environ, None)),
            restart=restart,
            degraded=degraded,
            state_dir=_state_dir(state_dir, environ),
            redis_url=environ.get("LOWKIQ_REDIS_URL") or environ.get("REDIS_URL") or None,
        )

    def node_environment(self) -> dict[str, str]:
        """What nodes find in their environment besides the supervisor's own."""
        return {"LOWKIQ_DRAIN_TIMEOUT": f"{self.drain_timeout:g}", "LOWKIQ_STATE_DIR": str(self.state_dir)}


#: A value and where it came from, for messages.
_Sourced = tuple[str, str] | None


def _given(option: str, value: str | None, environ: Mapping[str, str], plain: str | None) -> _Sourced:
    """The option, else LOWKIQ_<NAME>, else the plain name; an empty variable counts as unset."""
    if value is not None:
        return value, option
    own = "LOWKIQ_" + option.removeprefix("--").replace("-", "_").upper()
    for name in (own, plain):
        if name and environ.get(name):
            return environ[name], name
    return None


def _ordinal(given: _Sourced) -> tuple[int, str] | None:
    if given is None:
        return None
    value, source = given
    match = _ORDINAL.fullmatch(value.strip())
    if match is None:
        raise UsageError(
            f"{source} is {value!r}: this machine's number is an integer from 0, or a name that ends in one, "
            "such as jobs-3"
        )
    return int(match[1]), f"{source}={value}"


def _total(given: _Sourced) -> tuple[int, str] | None:
    if given is None:
        return None
    value, source = given
    if not re.fullmatch(r"[0-9]{1,9}", value.strip()) or int(value) < 1:
        raise UsageError(f"{source} is {value!r}: the number of all nodes is an integer from 1")
    return int(value), f"{source}={value}"


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


def _seconds(given: _Sourced) -> float:
    if given is None:
        return DEFAULT_DRAIN_TIMEOUT
    value, source = given
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{source} is {value!r}: give seconds, 0 or more")
    return seconds


def _state_dir(given: str | None, environ: Mapping[str, str]) -> Path:
    # systemd separates several runtime directories by colons; the first is the main one.
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(given or environ.get("LOWKIQ_STATE_DIR") or runtime or ".lowkiq").absolute()
