"""Alerts of what somebody else has written into Redis."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from lowkiq.admin.alerts.alert import NAMED, Alert
from lowkiq.queue.unreadable import Unreadable

#: What a shell takes as it stands; and the end of a name that was cut, so that nothing can be done with it.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:{} -]+")
_CUT: Final = re.compile(r"\.\.\. \([0-9,]+ bytes\)")


def of_unreadable(found: Sequence[Unreadable]) -> Iterator[Alert]:
    """An alert a value, for the first ones."""
    for one in found[:NAMED]:
        says = f"Redis holds something under {one.key} that Lowkiq can't read: {one.why}"
        do = f"See whether another version of Lowkiq wrote it; else remove it: {one.remedy}"
        yield Alert("unreadable", "bad", "", says, do, command=_in_shell(one.remedy), mark=one.key)
    if len(found) > NAMED:
        says = f"Redis holds {len(found) - NAMED:,} more values that Lowkiq can't read"
        yield Alert("unreadable", "bad", "", says, "See what else writes into this namespace")


def _in_shell(remedy: str) -> str:
    """A command of Redis as one of the shell, which must run nothing that a name contains: redis-cli unquotes it."""
    if _CUT.search(remedy):
        return ""
    return f"redis-cli {remedy}" if _PLAIN.fullmatch(remedy) else f"printf '%s\\n' {shlex.quote(remedy)} | redis-cli"
