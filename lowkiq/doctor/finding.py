"""Findings: what a check says, and how grave it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec

from lowkiq.admin.alerts.alert import Alert
from lowkiq.doctor.subject import Subject

Level = Literal["ok", "note", "warning", "problem"]

#: The gravest first, as people read them.
LEVELS: Final[tuple[Level, ...]] = ("problem", "warning", "note", "ok")


class Verdict(NamedTuple):
    """The answer of a check; `do` is for warnings and problems."""

    level: Level
    says: str
    do: str | None = None


#: It is as it should be.
ok: Final = partial(Verdict, "ok")
#: Good to know, and nothing to do.
note: Final = partial(Verdict, "note")
#: It works, but not as well or as safely as it could.
warning: Final = partial(Verdict, "warning")
#: Jobs are not accepted, not run, or in danger.
problem: Final = partial(Verdict, "problem")


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
