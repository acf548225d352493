"""Flushes: what each beat tells Redis of what the node has counted and seen since the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lowkiq.admin.jobs.failures import note
from lowkiq.log import ADVICE, TROUBLES
from lowkiq.node.counts.deploys import note_settings, note_version
from lowkiq.node.counts.incident_notes import SupervisorEvents
from lowkiq.node.remote import Remote
from lowkiq.node.runtime import Runtime


class FailureFlush:
    """What Redis may not have is told again with the same number, so it is counted once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._number = 0
        self._pending: Mapping[str, Mapping[str, int]] = {}

    def __call__(self) -> None:
        """Raises RedisError, and goes on with the next call."""
        runtime = self._runtime
        if not self._pending:
            self._pending = runtime.ledger.take()
            self._number += 1
        if self._pending:
            note(runtime.caller, runtime.namespace, runtime.node, self._number, self._pending)
            self._pending = {}


def flushes_of(runtime: Runtime, remote: Remote) -> list[Callable[[], None]]:
    """Each raises RedisError, and tells the same again with the next beat. The first beat tells which version runs."""
    caller, namespace = runtime.caller, runtime.namespace
    events = SupervisorEvents(runtime.page.read_bulletin)
    unsaid = list(runtime.queues)

    def say_version() -> None:
        if unsaid:
            note_version(caller, namespace, unsaid)
            note_settings(caller, namespace, runtime.node, runtime.workers.values())
            unsaid.clear()

    def say_log() -> None:
        for error in TROUBLES.take():
            runtime.incidents.note("mishap", f"The log can't be written as it should: {error}: {ADVICE}", "warn")

    return [
        say_version,
        say_log,
        partial(runtime.incidents.send, caller, namespace, runtime.node),
        partial(events.send, caller, namespace),
        partial(remote.exchange, caller, namespace),
        partial(runtime.times.flush, caller, namespace, runtime.node),
        FailureFlush(runtime),
    ]
