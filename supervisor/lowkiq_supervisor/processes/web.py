"""
The web view as a slot like any other, and the body of its process: after the fork, the place that imports `lowkiq.web`.

Nobody's job depends on it. So it is started again for ever, whatever was asked for the nodes, and takes nobody down.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from lowkiq.environment import ExitCode
from lowkiq.errors import LowkiqError
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.child import spawn
from lowkiq_supervisor.processes.node import OnState, begin
from lowkiq_supervisor.processes.slots import Slot
from lowkiq_supervisor.restart_policy import RestartHistory, RestartMode, RestartPolicy

#: Seconds to answer what it was asked and end: open pages come back by themselves.
GRACE = 3.0

log = structlog.stdlib.get_logger("supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSpec:
    """Everything the web view's process needs to know."""

    options: Options
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"web {self.options.web}"


#: Runs the web view in a forked child and returns its exit code. Tests put their own in its place.
RunWeb = Callable[[WebSpec, OnState], int]


def web_slot(spec: WebSpec, run: RunWeb, policy: RestartPolicy, close_foreign: Callable[[], None]) -> Slot:
    """The slot; the policy's delays apply, its ends don't."""
    return Slot(
        title=spec.title,
        history=RestartHistory(replace(policy, mode=RestartMode.ALWAYS, burst=False, gives_up=False)),
        launch=lambda _: spawn(
            lambda beat: run(spec, begin(spec.title, spec.environment, beat)), close_foreign=close_foreign
        ),
        grace=GRACE,
    )


def run_web(spec: WebSpec, on_state: OnState) -> int:
    """Import the application and serve its web view until TERM; BOOT if that can't be."""

    faulthandler.enable()  # a dump of every thread on ABRT, which is what a hung process gets
    on_state("starting")
    try:
        return _serve(spec.options, on_state)
    except (LowkiqError, OSError) as error:
        log.error("cannot_serve_web", slot=spec.title, error=str(error))
    except Exception:
        log.exception("cannot_serve_web", slot=spec.title)
    return ExitCode.BOOT


def _serve(options: Options, on_state: OnState) -> int:
    from lowkiq.importing import load_app  # noqa: PLC0415 - the supervisor must stay free of the library
    from lowkiq.web.server import serve  # noqa: PLC0415

    assert options.web is not None  # noqa: S101 - else there is no such process
    return serve(
        load_app(options.app),
        options.web,
        read_only=options.web_read_only,
        payloads=not options.web_no_payloads,
        no_auth=options.web_no_auth,
        on_state=on_state,
    )
