"""Stamps of calls whose sender sends nothing else, and which never come too late."""

from __future__ import annotations

from itertools import count

from lowkiq.queue.senders import Stamp

#: Microseconds, in the year 2255.
NEVER_LATE = 9_000_000_000_000_000
_numbers = count()


def once() -> Stamp:
    """A stamp that no other call has."""
    return Stamp(b"~once-%d" % next(_numbers), NEVER_LATE)
