"""Stop: why a batch that runs is ended from outside."""

from __future__ import annotations

from enum import Enum


class Stop(Enum):
    """A reason. It decides what becomes of the batch's jobs (Performer.stopped)."""

    #: It has run for longer than the worker's `perform_timeout`: a failure.
    TIMED_OUT = "timed out"
    #: Somebody has cancelled a job of it: that is done with, others of the batch go back.
    CANCELLED = "cancelled"
    #: Its node ends, and `drain_timeout` is over: its jobs go back.
    DRAINED = "drained"
