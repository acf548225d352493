"""The doctor's command: finds the application, has it examined, and makes a report for people or for machines."""

from __future__ import annotations

import json
import os
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.markup import escape
from rich.table import Column, Table

from lowkiq.admin.words import printable
from lowkiq.app import Lowkiq
from lowkiq.codec import error_text
from lowkiq.doctor.examination import examine
from lowkiq.doctor.subject import LEVELS, Finding, Level, Subject
from lowkiq.errors import AppNotFound, SettingsError
from lowkiq.importing import load_app
from lowkiq.version import VERSION

STYLES: Final[Mapping[Level, str]] = {"problem": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}

EPILOG: Final = """\b
Examples:
  lowkiq doctor -r shop.jobs                             everything: Redis, rights, queues, nodes, settings, machine
  lowkiq doctor                                          without what the application alone knows
  lowkiq doctor -r shop.jobs --json | jq '.findings[] | select(.level == "problem")'
  lowkiq doctor -r shop.jobs && lowkiq-supervisor --nodes 4 -r shop.jobs

\b
A finding is ok, a note, a warning (it works, but not as safely or as well as it could) or a problem (jobs are not
accepted, not run, or in danger). Exits 0 without problems, 1 with some, 3 when the application can't be found.
It changes nothing, and ends within half a minute, whatever state Redis is in.
"""


def examine_app(require: str | None) -> list[Finding]:
    """
    Findings on an application, its Redis and this machine.

    Raises:
        AppNotFound, SettingsError: the application can't be found, or can't be made.
    """
    app, broken = _app(require)
    return broken + examine(Subject(app, os.environ, has_app=require is not None and not broken))


def _app(require: str | None) -> tuple[Lowkiq, list[Finding]]:
    """The application; when its module breaks, that is a finding, and Redis is examined all the same."""
    if require is None:
        return Lowkiq(), []
    try:
        return load_app(require), []
    except (AppNotFound, SettingsError):
        raise
    except Exception as error:  # noqa: BLE001 (the module is the user's)
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        says = f"{require} can't be imported: {error_text(error)}{where}"
        do = f"mend it: python -c 'import {require.partition(':')[0]}'"
        return Lowkiq(), [Finding("settings.app", "problem", says, do)]


def is_well(findings: Sequence[Finding]) -> bool:
    """True when there is no problem. Warnings are for people to weigh."""
    return all(finding.level != "problem" for finding in findings)


def table(findings: Sequence[Finding]) -> Table:
    """A row a finding, with what to do below it."""
    rows = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for finding in sorted(findings, key=lambda finding: LEVELS.index(finding.level)):
        do = f"\n→ {escape(printable(finding.do, None))}" if finding.do else ""
        level = f"[{STYLES[finding.level]}]{finding.level}[/]"
        rows.add_row(level, finding.check, escape(printable(finding.says, None)) + do)
    return rows


def summary(findings: Sequence[Finding]) -> str:
    """The number of findings of each level."""
    counts = Counter(finding.level for finding in findings)
    return ", ".join(f"{counts[level]} {level}{'s' * (counts[level] != 1 and level != 'ok')}" for level in LEVELS)


def as_json(findings: Sequence[Finding]) -> str:
    """The report for machines; `check` names don't change between versions."""
    report = {
        "version": VERSION,
        "is_well": is_well(findings),
        "counts": dict.fromkeys(LEVELS, 0) | Counter(finding.level for finding in findings),
        "findings": [msgspec.structs.asdict(finding) for finding in findings],
    }
    return json.dumps(report, ensure_ascii=False)
