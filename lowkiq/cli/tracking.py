"""Commands that follow jobs: `track`, `untrack` and `events`."""

from __future__ import annotations

import datetime
from typing import Annotated

import msgspec
import typer

from lowkiq import Lowkiq
from lowkiq.admin.words import printable
from lowkiq.cli.opening import Answer, answering, as_text
from lowkiq.cli.queues import OneQueue, Queue, SomeIds, actions_on, counted, with_ids
from lowkiq.codec import encodable

EVENTS_EPILOG = """\b
Examples:
  lowkiq events                                          all queues, until you press Ctrl-C
  lowkiq events OrderSync --kind failed --kind buried
  lowkiq events OrderSync --id 17 --json                 a line of JSON for each
"""


@answering
def track(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Keeps what happens to jobs from now on; their pages show it, and the overview pins them."""
    return counted("tracked", with_ids(actions_on(app, queue).track, ids))


@answering
def untrack(app: Lowkiq, queue: Queue, ids: SomeIds) -> Answer:
    """Tracks jobs no longer, and forgets what was kept."""
    return counted("untracked", with_ids(actions_on(app, queue).untrack, ids))


@answering
def events(
    app: Lowkiq,
    queue: OneQueue = None,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="Only such events; may be given again.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Only of this id; may be given again.")] = None,
    as_json: bool = False,
) -> None:
    """Tells what happens to jobs, as it happens."""
    with app.events(queue, ids or None, kinds or None) as listening:
        for event in listening:
            at = datetime.datetime.fromtimestamp(event.at, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
            words = (at, event.kind, event.queue, event.id, event.node, event.detail)
            line = "  ".join(printable(word, 200) for word in words if word)
            typer.echo(as_text(msgspec.structs.replace(event, id=encodable(event.id))) if as_json else line)
