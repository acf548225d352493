"""Two clocks, never mixed: what people see is real time, what deadlines are measured by is monotonic."""

from __future__ import annotations

import time
from functools import partial

#: Seconds since the Unix epoch. It can jump: for people and records only.
real = time.time

#: Seconds since some moment, never backwards: for deadlines and durations only. It goes on while the machine sleeps, as
#: Redis's does: Python's own stands still then, on Linux, and a node that woke up would start jobs under leases that
#: are over.
monotonic = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
