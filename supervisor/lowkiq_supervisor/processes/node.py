"""A node as a slot, and the body of its process: the place that imports `lowkiq`, after the fork (but see preload)."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lowkiq.environment import code_of_import
from lowkiq.errors import LowkiqError, SettingsError, import_refusal, line_of
from lowkiq.log import get_logger
from lowkiq.process.ending import finish
from lowkiq.process.signals import SignalInbox
from lowkiq.process.title import set_title
from lowkiq.shared_page import SharedPage
from lowkiq_supervisor.directory import enter
from lowkiq_supervisor.names import birth_of
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.beat_pipe import HAS_END_HOOK, HAS_SPLITTER
from lowkiq_supervisor.processes.bulletins import Bulletins
from lowkiq_supervisor.processes.child import Child, spawn
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.restart_policy import RestartHistory, RestartPolicy
from lowkiq_supervisor.systemd import VARIABLES

#: The kernel, out of memory, rather takes a node than its supervisor.
EXPENDABLE = 200
#: Seconds after the drain timeout in which a node may end by itself: it needs some to give its leases back.
DRAIN_GRACE = 2.0

log = get_logger("supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """Everything a node's process needs to know."""

    options: Options
    #: Its name for people; numbers begin with 0 here as in NODE_NUMBER, logs and status.
    title: str
    node_number: int
    #: Of all machines, or if nobody numbers them of this one at the moment.
    number_of_nodes: int = 1
    environment: Mapping[str, str]
    #: It is to take no jobs, as the others.
    quiet: bool = False
    #: Shared with the supervisor. Its bulletin names the nodes that were reaped: their leases can be taken at once.
    page: SharedPage = field(default_factory=SharedPage)
    #: The random part of the node's name, made before the fork so that the supervisor can name a node it has reaped.
    token: str = field(default_factory=lambda: secrets.token_hex(6))

    def name(self, pid: int) -> str:
        """The node's name in Redis."""
        return f"{socket.gethostname()}:{pid}:{self.token}"


class OnState(Protocol):
    """Sends the supervisor a state, with the numbers of beat_pipe.py."""

    def __call__(
        self, state: str, busy: int = 0, jobs: int = 0, waits: int = 0, full: int = 0, late: int = 0
    ) -> None: ...


#: Runs a node in a forked child and returns its exit code. Tests put their own in its place.
RunNode = Callable[[NodeSpec, OnState], int]


def node_slot(
    options: Options,
    run: RunNode,
    policy: RestartPolicy,
    environment: Mapping[str, str],
    slots: Slots,
    bulletins: Bulletins,
    close_foreign: Callable[[], None],
    signals: SignalInbox,
    index: int,
) -> Slot:
    """The slot of one of the nodes here."""

    def launch(slot: Slot) -> Child:
        place = slot.beside or slot
        own = {"LOWKIQ_SLOT": str(index), "LOWKIQ_RESTARTS": str(place.starts), "LOWKIQ_LAST_EXIT": slot.why}
        own["LOWKIQ_RSS_LIMIT"] = str(options.max_rss or "")
        spec = NodeSpec(
            options=options,
            title=slot.title,
            node_number=number,
            number_of_nodes=max(len(slots.nodes), index + 1) if options.is_elastic else options.number_of_nodes,
            environment={**environment, **own},
            quiet=slots.quiet,
            page=SharedPage(slots.tree),
        )
        spec.page.write_bulletin(told := bulletins.of(slot))
        if options.preload:
            call_before_fork(options.app, signals)
        child = spawn(
            lambda beat: run(spec, begin(spec.title, spec.environment, beat)),
            close_foreign=close_foreign,
            expendable=EXPENDABLE,
        )
        child.name, child.page, child.told = spec.name(child.pid), spec.page, told
        child.birth = birth_of(child.pid)
        return child

    number = options.first_node + index
    # How many there are changes, where they go by the load or were scaled.
    is_counted = options.node_range is None and number < options.number_of_nodes
    return Slot(
        title=f"node {number}/{options.number_of_nodes}" if is_counted else f"node {number}",
        index=index,
        number=number,
        history=RestartHistory(policy),
        launch=launch,
        grace=options.drain_timeout + DRAIN_GRACE,
    )


def call_before_fork(app: str, signals: SignalInbox) -> None:
    """
    Call the preloaded application's hook, in the supervisor; whatever it does wrong, the node is started. One that
    hangs is ended by what ends the supervisor, on which this acts next.
    """
    from lowkiq.importing import load_app  # noqa: PLC0415 - with --preload it is here already

    try:
        hook = load_app(app).settings.before_fork
        if hook is not None and signals.call(hook, end=(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)):
            log.warning("before_fork_interrupted")
    except Exception:
        log.exception("before_fork_failed")


def run_node(spec: NodeSpec, on_state: OnState) -> int:
    """Import the application and run the node until it has drained; BOOT if it can't be, until a person changes it."""
    from lowkiq.importing import load_app  # noqa: PLC0415 - the supervisor must stay free of the library
    from lowkiq.node.node import Node  # noqa: PLC0415

    options = spec.options
    try:
        app = load_app(options.app)
        if app.settings.node_ended is not None:
            on_state(HAS_END_HOOK)
        if app.settings.build_splitter is not None:
            refuse_a_splitter(options)
            on_state(HAS_SPLITTER)
        if app.settings.before_fork is not None and not options.preload:
            log.warning("before_fork_not_called", slot=spec.title, hint="it is called with --preload only")
        # A keyword in the app wins over the environment in the node, but the supervisor's deadline comes first.
        if app.settings.drain_timeout > options.drain_timeout:
            log.warning(
                "drain_timeout_too_long",
                slot=spec.title,
                app=app.settings.drain_timeout,
                supervisor=options.drain_timeout,
                hint="the app's is longer than the supervisor's, which kills nodes then: use --drain-timeout",
            )
        node = Node(
            app,
            node_number=spec.node_number,
            number_of_nodes=spec.number_of_nodes,
            is_elastic=options.is_elastic,
            queues=options.queues,
            threads=options.threads,
            burst=options.burst,
            quiet=spec.quiet,
            name=spec.name(os.getpid()),
            page=spec.page,
            ends_process=True,
            source=options.app,
            on_state=on_state,
        )
    except (LowkiqError, SystemExit) as error:
        refusal = import_refusal(options.app, error)
        spec.page.write_refusal(refusal)
        log.error("boot_refused", slot=spec.title, error=refusal)
        return finish(code_of_import(error))
    except Exception as error:
        spec.page.write_refusal(line_of(error))
        log.exception("boot_failed", slot=spec.title)
        return finish(code_of_import(error))
    return finish(int(node.run()), node.time_left)


def refuse_a_splitter(options: Options) -> None:
    """Raises a SettingsError if the number of nodes may change, which a splitter of the application doesn't hear of."""
    if options.node_range is not None:
        raise SettingsError(
            f"--nodes {options.node_range.text} needs nodes that share the shards among themselves, and the "
            "application's build_splitter deals them to a fixed number: leave that out, or give --nodes a number"
        )


def begin(title: str, environment: Mapping[str, str], beat: Callable[[str], None]) -> OnState:
    """Sets the forked process up: environment, directory, title. Returns a beat that also shows in the title."""
    os.environ.update(environment)
    if directory := environment.get("PWD"):
        enter(directory)
    for name in VARIABLES:
        os.environ.pop(name, None)
    set_title(f"lowkiq: {title}")
    shown = ""

    def on_state(state: str, busy: int = 0, jobs: int = 0, waits: int = 0, full: int = 0, late: int = 0) -> None:
        nonlocal shown
        line = f"lowkiq: {title} [{state}]" + (f" {busy} busy" if busy else "")
        if line != shown:
            shown = line
            set_title(line)
        beat(f"{state} {busy} {jobs} {waits} {full} {late}")

    return on_state
