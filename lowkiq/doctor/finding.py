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


def of_alert(alert: Alert, since: str = "", level: Level | None = None) -> Verdict:
    """An alert as a problem or a warning, if it is not to be of another level."""
    return Verdict(level or ("problem" if alert.severity == "bad" else "warning"), f"{alert.says}{since}", alert.do)


def of_alerts(subject: Subject, *kinds: str, level: Level | None = None) -> list[Verdict]:
    """The alerts of these kinds, with since when they have lasted."""
    return [of_alert(alert, subject.since(alert), level) for alert in subject.alerts if alert.kind in kinds]
