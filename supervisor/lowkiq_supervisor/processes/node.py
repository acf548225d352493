"""
The body of a node's process: the place that imports `lowkiq`, after the fork (but see preload.py).
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from setproctitle import setproctitle

from lowkiq.environment import ExitCode
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.systemd import VARIABLES

log = structlog.stdlib.get_logger("supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """Everything a node's process needs to know."""

    app: str
    node_number: int
    number_of_nodes: int
    burst: bool
    #: Seconds after which the supervisor loses its patience with a draining node.
    drain_timeout: float
    #: The random part of the node's name, made before the fork so that the supervisor can name a node it has reaped.
    token: str
    #: It is to take no jobs, since the others were told so.
    quiet: bool = False
    #: Names of nodes this supervisor has reaped: their leases can be taken over at once.
    dead_nodes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        options: Options,
        number: int,
        dead_nodes: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        quiet: bool = False,
    ) -> NodeSpec:
        """The next process of a slot."""
        return cls(
            app=options.app,
            node_number=number,
            number_of_nodes=options.number_of_nodes,
            burst=options.burst,
            drain_timeout=options.drain_timeout,
            token=secrets.token_hex(6),
            quiet=quiet,
            dead_nodes=dead_nodes,
            environment=environment,
        )

    def name(self, pid: int) -> str:
        """The node's name in Redis."""
        return f"{socket.gethostname()}:{pid}:{self.token}"

    @property
    def title(self) -> str:
        """What people call it; numbers begin with 0 here as in NODE_NUMBER, logs and status."""
        return f"node {self.node_number}/{self.number_of_nodes}"


#: Runs a node in a forked child and returns its exit code. Tests put their own in its place.
RunNode = Callable[[NodeSpec, "Tell"], int]


class Tell(Protocol):
    """Tells the supervisor a node's state, its busy threads, its ended jobs, and for how many shards it stands by."""

    def __call__(self, state: str, busy: int = 0, jobs: int = 0, waits: int = 0) -> None: ...


def run_node(spec: NodeSpec, beat: Tell) -> int:
    """Import the application and run the node until it has drained; BOOT if there is nothing to run."""
    from lowkiq.errors import LowkiqError  # noqa: PLC0415 - the supervisor must stay free of the library
    from lowkiq.importing import load_app  # noqa: PLC0415
    from lowkiq.node.node import Node  # noqa: PLC0415

    try:
        app = load_app(spec.app)
        _warn_of_a_longer_drain(spec, app.settings.drain_timeout)
        node = Node(
            app,
            node_number=spec.node_number,
            number_of_nodes=spec.number_of_nodes,
            burst=spec.burst,
            quiet=spec.quiet,
            name=spec.name(os.getpid()),
            dead_nodes=spec.dead_nodes,
            on_state=beat,
        )
    except LowkiqError as error:
        log.error("can't boot", slot=spec.title, error=str(error))
        return ExitCode.BOOT
    except Exception:
        log.exception("can't boot", slot=spec.title)
        return ExitCode.BOOT
    return int(node.run())


def _warn_of_a_longer_drain(spec: NodeSpec, seconds: float) -> None:
    """A keyword in the app wins over the environment in the node, but the supervisor's deadline comes first."""
    if seconds > spec.drain_timeout:
        log.warning(
            "the app's drain_timeout is longer than the supervisor's, which kills nodes then: use --drain-timeout",
            slot=spec.title,
            app=seconds,
            supervisor=spec.drain_timeout,
        )


def begin(title: str, environment: Mapping[str, str], beat: Callable[[str], None]) -> Tell:
    """In the forked process, before it runs: environment and title. Returns a beat that also shows in the title."""
    os.environ.update(environment)
    for name in VARIABLES:
        os.environ.pop(name, None)
    setproctitle(f"lowkiq: {title}")
    shown = ""

    def tell(state: str, busy: int = 0, jobs: int = 0, waits: int = 0) -> None:
        nonlocal shown
        line = f"lowkiq: {title} [{state}]" + (f" {busy} busy" if busy else "")
        if line != shown:
            shown = line
            setproctitle(line)
        beat(f"{state} {busy} {jobs} {waits}")

    return tell
