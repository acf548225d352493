"""The command: finds the application, has it examined, and reports."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Final

import typer

from lowkiq.app import Lowkiq
from lowkiq.cli import tables
from lowkiq.doctor import report
from lowkiq.doctor.examination import examine
from lowkiq.doctor.finding import Finding
from lowkiq.doctor.subject import Patient
from lowkiq.errors import AppNotFound, SettingsError
from lowkiq.importing import load_app

EXIT_WELL, EXIT_PROBLEMS = 0, 1

EPILOG: Final = """\b
Examples:
  lowkiq doctor -r shop.jobs                             everything: Redis, rights, queues, nodes, settings, machine
  lowkiq doctor                                          without what the application alone knows
  lowkiq doctor -r shop.jobs --json | jq '.findings[] | select(.level == "problem")'
  lowkiq doctor -r shop.jobs && lowkiq-supervisor --nodes 4 -r shop.jobs

\b
A finding is ok, a note, a warning (it works, but not as safely or as well as it could) or a problem (jobs are not
accepted, not run, or in danger). Exits 0 without problems, 1 with some, 2 when the application can't be found.
It changes nothing, and ends within half a minute, whatever state Redis is in.
"""


def run(require: str | None, *, as_json: bool) -> int:
    """
    Examines, prints, and returns the exit code.

    Raises:
        AppNotFound, SettingsError: the application can't be found, or can't be made.
    """
    app, broken = _app(require)
    patient = Patient(app, os.environ, has_app=require is not None and broken is None)
    findings = ([broken] if broken else []) + examine(patient)
    if as_json:
        typer.echo(report.as_json(findings))
    else:
        tables.show(report.table(findings))
        typer.echo(report.summary(findings))
    return EXIT_WELL if report.is_well(findings) else EXIT_PROBLEMS


def _app(require: str | None) -> tuple[Lowkiq, Finding | None]:
    """The application; when its module breaks, that is a finding, and Redis is examined all the same."""
    if require is None:
        return Lowkiq(), None
    try:
        return load_app(require), None
    except (AppNotFound, SettingsError):
        raise
    except Exception as error:  # noqa: BLE001 (the module is the user's)
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        says = f"{require} can't be imported: {type(error).__name__}: {error}{where}"
        do = f"mend it: python -c 'import {require.partition(':')[0]}'"
        return Lowkiq(), Finding("settings.app", "problem", says, do)
