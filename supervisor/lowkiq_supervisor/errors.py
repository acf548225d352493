"""The supervisor's own errors; their messages are for the person who started it."""

from __future__ import annotations


class SupervisorError(Exception):
    """Base of the errors that end the supervisor with a message instead of a traceback."""


class UsageError(SupervisorError):
    """An option or a variable is wrong; the message names the value and the way out."""


class BootError(SupervisorError):
    """The supervisor can't begin: something on this machine is in the way."""
