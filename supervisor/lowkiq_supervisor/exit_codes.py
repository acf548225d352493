"""What the supervisor's exit code says. Service managers and scripts decide by these numbers: they never change."""

from __future__ import annotations

import signal
from enum import IntEnum

#: Exit code of a node that asks to be replaced (recycling): not a failure.
NODE_RECYCLE = 75


class ExitCode(IntEnum):
    """Exit codes of `lowkiq-supervisor`; a node uses BOOT the same way."""

    DRAINED = 0  # every node finished its jobs, or a burst is over
    INTERNAL = 1  # a bug of the supervisor
    USAGE = 2  # wrong options or environment: starting again won't help
    BOOT = 3  # no node got through its first boot, or the embedded Redis didn't
    CRASH_LOOP = 4  # a node failed too often and was given up
    FORCED_KILL = 5  # a process didn't end by the drain deadline and was killed
    ABANDONED = 130  # second INT, or QUIT


def describe_exit(code: int) -> str:
    """A child's end in words; negative codes are signals, as `os.waitstatus_to_exitcode` gives them."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
