"""Quiet: a node that takes no new jobs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from lowkiq import clock
from lowkiq.node.job_thread import JobThread

#: Seconds to wait, before the node says that it is quiet, for threads that have something asked of Redis.
CALM: Final = 1.0


def hush(threads: Sequence[JobThread]) -> None:
    """Has threads take no new jobs, and waits until none is on its way to one."""
    for thread in threads:
        thread.quiet()
    until = clock.monotonic() + CALM
    while clock.monotonic() < until and not all(thread.is_calm for thread in threads):
        time.sleep(0.001)
