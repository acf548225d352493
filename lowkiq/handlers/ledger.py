"""Ledger: counts a node's failures by kind in its memory, until a beat tells Redis of them (admin/jobs/failures.py)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from lowkiq.admin.jobs.failures import MOST_GROUPS
from lowkiq.failure import group_of


class Ledger:
    """Safe to share between threads. Of a queue it counts as many groups as are kept; more come with the next beat."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, Counter[str]] = {}

    def add(self, queue: str, error: str, failures: int) -> None:
        """Counts jobs of a queue that have failed with this error, or with one of this group."""
        group = group_of(error)
        with self._lock:
            counted = self._counted.setdefault(queue, Counter())
            if group in counted or len(counted) < MOST_GROUPS:
                counted[group] += failures

    def take(self) -> Mapping[str, Mapping[str, int]]:
        """What was counted since the last call: queue → group → failures."""
        if not self._counted:
            return {}
        with self._lock:
            taken, self._counted = self._counted, {}
        return taken
