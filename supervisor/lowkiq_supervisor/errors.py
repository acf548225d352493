"""The supervisor's own errors. A wrong option is the library's SettingsError."""

from __future__ import annotations

from lowkiq.errors import LowkiqError


class BootError(LowkiqError):
    """The supervisor can't begin: something on this machine is in the way."""


class MayHeal(BootError):
    """It can't begin now, but perhaps later, with nothing changed."""


class CommandRefused(LowkiqError):
    """A running supervisor won't do what a command asks for."""


class Unreachable(LowkiqError):
    """No supervisor answers."""
