"""The command `find`: jobs by their ids, over all queues."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lowkiq.admin.jobs.finder import Finder
from lowkiq.admin.metrics import read_layouts
from lowkiq.admin.why.reading import Reader, read_around
from lowkiq.cli import tables
from lowkiq.cli.opening import AsJson, Require, fail, opened_app
from lowkiq.environment import ExitCode
from lowkiq.errors import short


def find(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help='An exact id, or a glob such as "order-*".')],
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Of a glob: about so many jobs at most.")] = 50,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Finds jobs by their ids, over all queues, and why they do not run. Exits with 1 if there is none."""
    with opened_app(require or context.obj) as app:
        settings = app.settings
        layouts = read_layouts(app.caller, settings.namespace)
        finder = Finder(
            app.caller, settings.namespace, layouts, load_error=settings.load_error,
            max_id_bytes=settings.max_id_bytes,
        )  # fmt: skip
        page = finder.find(id, limit=limit)
        found = list(page.jobs)
        while page.next and len(found) < limit:
            page = finder.find(id, page.next, limit)
            found += page.jobs
        around = read_around(app.caller, settings.namespace, layouts)
        reasons = Reader(app.caller, settings.namespace, around, app.workers).reasons(found)
        rows = [tables.found(one, reason) for one, reason in zip(found, reasons, strict=True)]
        if as_json:
            typer.echo(json.dumps(rows))
        elif found:
            tables.show(tables.of_found(rows), *(["there are more: raise --limit"] if page.next else []))
        if not found:
            fail(f"no job {short(id)} in any queue: it is done, deleted, or was never pushed", ExitCode.FAILED)
