"""The commands `find`, for jobs by their ids over all queues, and `jobs`, for those of one queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

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
from lowkiq.cli.opening import Answer, answering
from lowkiq.cli.queues import Queue, shards_count
from lowkiq.errors import short, unknown_option
from lowkiq.failure import group_of

MORE: Final = "there are more: raise --limit"
#: What a state may be called.
NAMES: Final = (*(name for name in STATES if name not in {"in_flight", "retries", "due"}), *ALIASES)


@answering
def find(
    app: Lowkiq,
    id: Annotated[str, typer.Argument(metavar="ID", help='An exact id, or a glob such as "order-*".')],
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Of a glob: about so many jobs at most.")] = 50,
) -> Answer:
    """Finds jobs by their ids, over all queues, and why they do not run. Exits with 1 if there is none."""
    settings = app.settings
    layouts = read_layouts(app.caller, settings.namespace)
    finder = Finder(
        app.caller, settings.namespace, layouts, load_error=settings.load_error, max_id_bytes=settings.max_id_bytes
    )
    page = finder.find(id, limit=limit)
    found = list(page.jobs)
    while page.next and len(found) < limit:
        page = finder.find(id, page.next, limit)
        found += page.jobs
    if not found:
        no_match = f"no queued or dead job matches {short(id)}: {RUNNING}"
        typer.echo(f"lowkiq: {no_match if is_glob(id) else f'no job {short(id)} in any queue: {GONE}'}", err=True)
    return _found(app, found, *([MORE] if page.next else []), *([RUNNING] if is_glob(id) else []))


@answering
def jobs(
    app: Lowkiq,
    queue: Queue,
    state: Annotated[str, typer.Option(help=f"Where they are: {', '.join(NAMES)}.")] = "queued",
    pattern: Annotated[str | None, typer.Option(help='Only ids that match a glob, e.g. "order-*".')] = None,
    error: Annotated[str | None, typer.Option(help="Only with this error, as `lowkiq failures` has it.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="About so many at most.")] = 50,
) -> Answer:
    """Lists jobs of a queue in one state, and why they do not run."""
    if state not in NAMES:
        raise unknown_option("state", state, NAMES)
    previews, view, error = previews_of(app, queue), state_named(state), error and group_of(error)
    more: list[str] = []
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
        more = [MORE] if page.next is not None else []
    answer = _found(app, [FoundJob(queue, job) for job in found], *more)
    none = f"no {STATES[view].noun[0]} of {queue}{' matches' if pattern or error or tag else ''}"
    return answer if found else Answer([], none)


def previews_of(app: Lowkiq, queue: str) -> Previews:
    """Reads a queue for people. Raises UnknownQueue."""
    settings, shards = app.settings, app.shards(queue, shards_count(app, queue))
    return Previews(app.caller, shards, load_error=settings.load_error, max_id_bytes=settings.max_id_bytes)


def reasons_of(app: Lowkiq, found: Sequence[FoundJob]) -> list[Reason]:
    """Why each of these jobs does not run."""
    layouts = read_layouts(app.caller, app.settings.namespace)
    around = read_around(app.caller, app.settings.namespace, layouts)
    return Reader(app.caller, app.settings.namespace, around, app.workers).reasons(found)


def _found(app: Lowkiq, found: Sequence[FoundJob], *lines: str) -> Answer:
    rows = [tables.found(one, reason) for one, reason in zip(found, reasons_of(app, found), strict=True)]
    return Answer(rows, [tables.of_found(rows), *lines] if found else (), bool(found))
