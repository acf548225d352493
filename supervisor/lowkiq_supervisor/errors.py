"""The supervisor's own errors. A wrong option is the library's SettingsError."""

from __future__ import annotations

from lowkiq.environment import ExitCode
from lowkiq.errors import LowkiqError


class BootError(LowkiqError):
    """The supervisor can't begin: something on this machine is in the way. With INTERNAL it may heal by itself."""

    def __init__(self, message: str, code: int = ExitCode.BOOT) -> None:
        super().__init__(message)
        self.code = code


class CommandRefused(LowkiqError):
    """A running supervisor won't do what a command asks for."""


class Unreachable(LowkiqError):
    """No supervisor answers."""
