"""The hook node_ended: a process that imports the application, calls it with the reason, and is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq.process.ending import finish
from lowkiq.process.title import set_title
from lowkiq_supervisor.processes.child import Child, spawn
from lowkiq_supervisor.processes.node import EXPENDABLE
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.restart_policy import End, RestartHistory, RestartPolicy

#: Seconds for the import and the call.
LIFETIME = 10.0
#: Calls at a time: nodes that die by the dozen must not take the machine by that, too.
MOST_CALLS = 4

log = get_logger("supervisor")

#: Calls the hook of the application with a reason, in a forked child.
RunHook = Callable[[str, str], int]


@dataclass(frozen=True, slots=True)
class EndHooks:
    """The calls under way."""

    slots: Slots
    app: str
    environment: Mapping[str, str]
    run: RunHook
    close_foreign: Callable[[], None]

    def ended(self, slot: Slot, child: Child, reason: str) -> None:
        """A node has ended: if its application wants to know, tell it."""
        if not child.has_end_hook:
            return
        if len(self.slots.hooks) >= MOST_CALLS:
            log.warning("hook_skipped", hook="node_ended", slot=slot.title, reason=reason, calls=MOST_CALLS)
            return
        told = f"{slot.title}: {reason}"
        call = Slot(
            title=f"hook node_ended of {slot.title}",
            history=RestartHistory(RestartPolicy()),
            launch=lambda _: spawn(lambda _: self._call(told), close_foreign=self.close_foreign, expendable=EXPENDABLE),
            grace=LIFETIME,
            lifetime=LIFETIME,
        )
        call.schedule(time.monotonic())
        self.slots.hooks.append(call)

    def call_ended(self, call: Slot, end: End) -> None:
        """A call is over; how it went is an event, and nothing more."""
        self.slots.hooks.remove(call)
        if end.code:
            log.warning("hook_failed", hook="node_ended", slot=call.title, reason=call.last_exit)

    def _call(self, reason: str) -> int:
        os.environ.update(self.environment)
        set_title("lowkiq: hook node_ended")
        return self.run(self.app, reason)


def run_end_hook(app: str, reason: str) -> int:
    """Import the application, unless it is there, and call its hook."""
    from lowkiq.importing import load_app  # noqa: PLC0415 - the supervisor must stay free of the library

    hook = load_app(app).settings.node_ended
    if hook is not None:
        hook(reason)
    return finish(ExitCode.DRAINED)
