"""Commands that follow jobs: `track`, `untrack` and `events`."""

from __future__ import annotations

import datetime
import json
from typing import Annotated

import msgspec
import typer

from lowkiq.admin.words import printable
from lowkiq.cli.opening import AsJson, Require, opened_app
from lowkiq.cli.queues import Queue, SomeIds, actions_on, with_ids
from lowkiq.codec import encodable

EVENTS_EPILOG = """\b
Examples:
  lowkiq events                                          all queues, until you press Ctrl-C
  lowkiq events OrderSync --kind failed --kind buried
  lowkiq events OrderSync --id 17 --json                 a line of JSON for each
"""


def track(context: typer.Context, queue: Queue, ids: SomeIds, require: Require = None, as_json: AsJson = False) -> None:
    """Keeps what happens to jobs from now on; their pages show it, and the overview pins them."""
    with opened_app(require or context.obj) as app:
        count = with_ids(actions_on(app, queue).track, ids)
        typer.echo(json.dumps({"tracked": count}) if as_json else f"{count} tracked")


def untrack(
    context: typer.Context, queue: Queue, ids: SomeIds, require: Require = None, as_json: AsJson = False
) -> None:
    """Tracks jobs no longer, and forgets what was kept."""
    with opened_app(require or context.obj) as app:
        count = with_ids(actions_on(app, queue).untrack, ids)
        typer.echo(json.dumps({"untracked": count}) if as_json else f"{count} untracked")


def events(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]")] = None,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="Only such events; may be given again.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Only of this id; may be given again.")] = None,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Tells what happens to jobs, as it happens."""
    with opened_app(require or context.obj) as app, app.events(queue, ids or None, kinds or None) as listening:
        for event in listening:
            if as_json:
                row = msgspec.structs.replace(event, id=encodable(event.id))
                typer.echo(msgspec.json.encode(row).decode())
                continue
            at = datetime.datetime.fromtimestamp(event.at, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
            words = (at, event.kind, event.queue, event.id, event.node, event.detail)
            typer.echo("  ".join(printable(word, 200) for word in words if word))
