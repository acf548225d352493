"""Findings: what a check says, and how grave it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from lowkiq.admin.alerts import Alert
from lowkiq.doctor.subject import Subject

Level = Literal["ok", "note", "warning", "problem"]

#: The gravest first, as people read them.
LEVELS: Final[tuple[Level, ...]] = ("problem", "warning", "note", "ok")


class Verdict(NamedTuple):
    """The answer of a check; `do` is for warnings and problems."""

    level: Level
    says: str
    do: str | None = None


class Finding(msgspec.Struct, frozen=True):
    """A verdict under the name of its check."""

    check: str
    level: Level
    says: str
    do: str | None


#: Examines one thing. No verdict means that there was nothing to examine.
Check = Callable[[Subject], Iterable[Verdict]]


def of_alert(alert: Alert) -> Verdict:
    """An alert as a problem or a warning."""
    return problem(alert.says, alert.do) if alert.severity == "bad" else warning(alert.says, alert.do)


def ok(says: str) -> Verdict:
    """It is as it should be."""
    return Verdict("ok", says)


def note(says: str) -> Verdict:
    """Good to know, and nothing to do."""
    return Verdict("note", says)


def warning(says: str, do: str) -> Verdict:
    """It works, but not as well or as safely as it could."""
    return Verdict("warning", says, do)


def problem(says: str, do: str) -> Verdict:
    """Jobs are not accepted, not run, or in danger."""
    return Verdict("problem", says, do)
