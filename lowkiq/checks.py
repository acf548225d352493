"""Checks: what the value of an option may be. Called with a label and a value, each raises SettingsError for others."""

from __future__ import annotations

import inspect
from typing import Any, Final, NamedTuple

from lowkiq.errors import SettingsError, short


class Whole(NamedTuple):
    """An integer from the lowest to the highest."""

    low: int
    high: int

    def __call__(self, label: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise SettingsError(f"{label} is {value!r}, it must be an integer from {self}")

    def __str__(self) -> str:
        return f"{self.low:,} to {self.high:,}"


class UpTo(NamedTuple):
    """A number from 0, which turns something off, to the highest."""

    high: float

    def __call__(self, label: str, value: Any) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= self.high):
            raise SettingsError(f"{label} is {short(value)}, it must be a number from 0 (off) to {self.high:,}")


#: So many texts are told as "a", "b" or "c"; more of them as a list.
_FEW: Final = 3


class OneOf(tuple[str, ...]):
    """One of some texts."""

    def __call__(self, label: str, value: Any) -> None:
        if not isinstance(value, str) or value not in self:
            raise SettingsError(f"{label} is {short(value)}, it must be {self}")

    def __str__(self) -> str:
        if len(self) > _FEW:
            return f"one of {', '.join(self)}"
        *others, last = (f'"{text}"' for text in self)
        return f"{', '.join(others)} or {last}"


class FunctionOf(NamedTuple):
    """A function of these, such as the example."""

    of: str
    example: str

    def __call__(self, label: str, value: Any) -> None:
        may_be = f"it must be a function of {self.of}, such as `{self.example}`"
        if not callable(value) or inspect.iscoroutinefunction(value):
            raise SettingsError(f"{label} is {short(value)}: {may_be}")
        try:
            inspect.signature(value).bind(*[None] * len(self.of.split(" and ")))
        except TypeError as error:
            raise SettingsError(f"{label} can't be called with {self.of} ({error}): {may_be}") from error
        except ValueError:  # of what is written in C
            return
