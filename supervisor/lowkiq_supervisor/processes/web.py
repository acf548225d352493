"""
The web view as a slot, and the body of its process, which imports `lowkiq.web` after the fork. No job depends on it: so
it is started again for ever, whatever was asked for the nodes, and takes nothing else down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from lowkiq.environment import MADE_UP, Credentials, ExitCode, link_to_sign_in, make_token
from lowkiq.errors import LowkiqError
from lowkiq.log import get_logger
from lowkiq.process.ending import finish
from lowkiq.process.faults import dump_on_faults
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.child import spawn
from lowkiq_supervisor.processes.node import OnState, begin
from lowkiq_supervisor.processes.slots import Slot
from lowkiq_supervisor.restart_policy import RestartHistory, RestartMode, RestartPolicy

#: As a node's, and before one.
EXPENDABLE = 300
#: Seconds to answer what it was asked, clean up and end: open pages come back by themselves.
GRACE = 5.0

log = get_logger("supervisor")

#: Runs the web view in a forked child and returns its exit code. Tests put their own in its place.
RunWeb = Callable[[Options, OnState], int]


def web_slot(
    options: Options,
    run: RunWeb,
    policy: RestartPolicy,
    environment: Mapping[str, str],
    close_foreign: Callable[[], None],
) -> Slot:
    """The slot; the policy's delays apply, its ends don't."""
    title = f"web {options.web}"
    environment = {**environment, **_token_of(options)}
    return Slot(
        title=title,
        history=RestartHistory(replace(policy, mode=RestartMode.ALWAYS, burst=False, strict=False)),
        launch=lambda _: spawn(
            lambda beat: run(options, begin(title, environment, beat)),
            close_foreign=close_foreign,
            expendable=EXPENDABLE,
        ),
        grace=GRACE,
    )


def _token_of(options: Options) -> dict[str, str]:
    """The variable with a token for a view that has no credentials, whose link is shown once: restarts keep it."""
    if options.web is None or options.web_no_auth or Credentials.find(os.environ):
        return {}
    token = make_token()
    hint = "open it to sign in; to have a token of your own, set LOWKIQ_WEB_TOKEN"
    log.warning("web_link", url=link_to_sign_in(options.web, token), hint=hint)
    return {MADE_UP: token}


def run_web(options: Options, on_state: OnState) -> int:
    """Import the application and serve its web view until TERM; BOOT if that can't be."""
    dump_on_faults()  # a dump of every thread on ABRT, which is what a hung process gets
    on_state("starting")
    try:
        from lowkiq.importing import load_app  # noqa: PLC0415 - the supervisor must stay free of the library
        from lowkiq.web.server import serve  # noqa: PLC0415

        assert options.web is not None  # noqa: S101 - else there is no such process
        return finish(
            serve(
                load_app(options.app),
                options.web,
                read_only=options.web_read_only,
                payloads=not options.web_no_payloads,
                no_auth=options.web_no_auth,
                on_state=on_state,
            )
        )
    except (LowkiqError, OSError) as error:
        log.error("cannot_serve_web", slot=f"web {options.web}", error=str(error))
    except Exception:
        log.exception("cannot_serve_web", slot=f"web {options.web}")
    return ExitCode.BOOT
