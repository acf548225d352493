"""Command `lowkiq reshard`: gives a queue another number of shards, and shows how far its nodes are with that."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin import resharding
from lowkiq.admin.words import printable
from lowkiq.cli.nodes import who
from lowkiq.cli.opening import Answer, answering
from lowkiq.cli.queues import Queue, actions_on, shards_count

RESHARD_EPILOG: Final = """\b
Examples:
  lowkiq reshard OrderSync 48                            begin, and watch; what was begun goes on by itself
  lowkiq reshard OrderSync 48 --no-wait
  lowkiq reshard OrderSync                               how far it is, or how the last one went

\b
The nodes of the queue move its jobs, while they run on, and producers push. Each id waits while its shard is moved: of
all of them until the last is, unless the number is a multiple of the one before, or divides it. Begun again with the
same number it only watches; another number is refused until it is over.
"""
#: Seconds between looks.
LOOK: Final = 0.25


@answering
def reshard(
    app: Lowkiq,
    queue: Queue,
    shards: Annotated[int | None, typer.Argument(metavar="[SHARDS]", show_default=False)] = None,
    wait: Annotated[bool, typer.Option(help="Watch until it is over.")] = True,
    as_json: bool = False,
) -> Answer:
    """Gives a queue another number of shards while it is in use, or tells how far that is."""
    count = shards_count(app, queue)
    if shards is not None:
        found: resharding.Resharding | None = actions_on(app, queue).reshard(shards, who=who())
    else:
        found = resharding.read_progress(app.caller, app.settings.namespace, queue)
    if found is None:
        return Answer(None, f"{printable(queue, 200)} has {count:,} shards, and was not resharded lately")
    if wait and not found.is_over:
        found = _watch(app, queue, found, shows=not as_json and sys.stderr.isatty())
    return Answer(found, f"{printable(queue, 200)}: {found.says}")


def told_of(app: Lowkiq) -> list[str]:
    """A line for each queue that is being resharded."""
    found = resharding.read_moving(app.caller, app.settings.namespace)
    return [f"{printable(queue, 60)}: {one.says}" for queue, one in found.items()]


def _watch(app: Lowkiq, queue: str, found: resharding.Resharding, *, shows: bool) -> resharding.Resharding:
    """Looks until it is over."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn()
    with Progress(*columns, disable=not shows) as bar:
        task = bar.add_task(f"{printable(queue, 60)} {found.before} → {found.shards}", total=100)
        while not found.is_over:
            time.sleep(LOOK)
            now = resharding.read_progress(app.caller, app.settings.namespace, queue)
            if now is None:
                raise SettingsError(f"Redis knows no queue {queue} any more")
            found = now
            bar.update(task, completed=found.percent)
    return found
