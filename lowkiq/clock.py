"""Two clocks, never mixed: what people see is real time, what deadlines are measured by is monotonic."""

from __future__ import annotations

import time

#: Seconds since the Unix epoch. It can jump: for people and records only.
real = time.time

#: Seconds since some moment, never backwards: for deadlines and durations only.
monotonic = time.monotonic
