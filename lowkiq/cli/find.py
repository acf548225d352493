"""The commands `find`, for jobs by their ids over all queues, and `jobs`, for those of one queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.jobs.finder import GONE, RUNNING, Finder, FoundJob
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.search import is_glob
from lowkiq.admin.jobs.states import ALIASES, STATES, state_named
from lowkiq.admin.metrics import read_layouts
from lowkiq.admin.why.reading import Reader, read_around
from lowkiq.admin.why.reasons import Reason
from lowkiq.cli import tables
from lowkiq.cli.opening import AsJson, Require, fail, opened_app
from lowkiq.cli.queues import Queue, shards_count
from lowkiq.environment import ExitCode
from lowkiq.errors import short, unknown_option
from lowkiq.failure import group_of

MORE: Final = "there are more: raise --limit"
#: What a state may be called.
NAMES: Final = (*(name for name in STATES if name not in {"in_flight", "retries", "due"}), *ALIASES)


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
        more = [MORE] if page.next else []
        _tell(app, found, *more, *([RUNNING] if is_glob(id) else []), as_json=as_json)
        if not found:
            no_match = f"no queued or dead job matches {short(id)}: {RUNNING}"
            fail(no_match if is_glob(id) else f"no job {short(id)} in any queue: {GONE}", ExitCode.FAILED)


def jobs(
    context: typer.Context,
    queue: Queue,
    state: Annotated[str, typer.Option(help=f"Where they are: {', '.join(NAMES)}.")] = "queued",
    pattern: Annotated[str | None, typer.Option(help='Only ids that match a glob, e.g. "order-*".')] = None,
    error: Annotated[str | None, typer.Option(help="Only with this error, as `lowkiq failures` has it.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="About so many at most.")] = 50,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Lists jobs of a queue in one state, and why they do not run."""
    with opened_app(require or context.obj) as app:
        if state not in NAMES:
            raise unknown_option("state", state, NAMES)
        previews, view, error = previews_of(app, queue), state_named(state), error and group_of(error)
        more = False
        if view == "in_flight":
            if pattern or error or tag:
                raise SettingsError("what runs can't be searched: --state running is one list of all")
            found = previews.in_flight(limit)
        else:
            page = previews.page(view, limit=limit, pattern=pattern, error=error, tag=tag)
            found = list(page.jobs)
            while page.next and len(found) < limit:
                page = previews.page(view, cursor=page.next, limit=limit, pattern=pattern, error=error, tag=tag)
                found += page.jobs
            more = page.next is not None
        _tell(app, [FoundJob(queue, job) for job in found], *([MORE] if more else []), as_json=as_json)
        if not (found or as_json):
            typer.echo(f"no {STATES[view].noun[0]} of {queue}{' matches' if pattern or error or tag else ''}")


def previews_of(app: Lowkiq, queue: str) -> Previews:
    """Reads a queue for people. Raises UnknownQueue."""
    settings, shards = app.settings, app.shards(queue, shards_count(app, queue))
    return Previews(app.caller, shards, load_error=settings.load_error, max_id_bytes=settings.max_id_bytes)


def reasons_of(app: Lowkiq, found: Sequence[FoundJob]) -> list[Reason]:
    """Why each of these jobs does not run."""
    layouts = read_layouts(app.caller, app.settings.namespace)
    around = read_around(app.caller, app.settings.namespace, layouts)
    return Reader(app.caller, app.settings.namespace, around, app.workers).reasons(found)


def _tell(app: Lowkiq, found: Sequence[FoundJob], *lines: str, as_json: bool) -> None:
    reasons = zip(found, reasons_of(app, found), strict=True)
    rows: list[dict[str, Any]] = [tables.found(one, reason) for one, reason in reasons]
    if as_json:
        typer.echo(json.dumps(rows))
    elif found:
        tables.show(tables.of_found(rows), *lines)
