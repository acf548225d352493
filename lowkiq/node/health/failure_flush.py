"""FailureFlush: tells Redis, with each beat, of the failures that the node has counted since the last."""

from __future__ import annotations

from collections.abc import Mapping

from lowkiq.admin.jobs.failures import note
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
