"""Report: findings for people, the gravest first, and for machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from rich.markup import escape
from rich.table import Table

from lowkiq.cli.tables import printable
from lowkiq.doctor.finding import LEVELS, Finding, Level
from lowkiq.version import VERSION

STYLES: Final[Mapping[Level, str]] = {"problem": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}


def is_well(findings: Sequence[Finding]) -> bool:
    """Whether there is no problem. Warnings are for people to weigh."""
    return all(finding.level != "problem" for finding in findings)


def table(findings: Sequence[Finding]) -> Table:
    """A row a finding, with what to do below it."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for finding in sorted(findings, key=lambda finding: LEVELS.index(finding.level)):
        do = f"\n→ {escape(printable(finding.do))}" if finding.do else ""
        level = f"[{STYLES[finding.level]}]{finding.level}[/]"
        rows.add_row(level, finding.check, escape(printable(finding.says)) + do)
    return rows


def summary(findings: Sequence[Finding]) -> str:
    """How many of which."""
    counts = Counter(finding.level for finding in findings)
    words = [f"{counts[level]} {level}{'s' * (counts[level] != 1 and level != 'ok')}" for level in LEVELS]
    return ", ".join(words)


def as_json(findings: Sequence[Finding]) -> str:
    """The same for machines; `check` names don't change between versions."""
    told = {
        "version": VERSION,
        "is_well": is_well(findings),
        "counts": dict.fromkeys(LEVELS, 0) | Counter(finding.level for finding in findings),
        "findings": [msgspec.structs.asdict(finding) for finding in findings],
    }
    return json.dumps(told, ensure_ascii=False)
