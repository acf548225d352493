"""Commands on live settings: `set`, `unset` and `settings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.live import LiveSetting, read_live
from lowkiq.admin.words import age, printable
from lowkiq.cli.opening import Answer, answering, who
from lowkiq.cli.queues import OneQueue, Queue, actions_on, counted, shards_count
from lowkiq.log import DEFAULT_LEVEL
from lowkiq.options import ALERT_LIMITS, SETTABLE, parse_live
from lowkiq.queue.call import redis_time

#: Settings that no worker has in its code → what nodes go by without; of a weight that is with --queues.
BESIDE_CODE: Final = {"log_level": DEFAULT_LEVEL, "weight": "--queues"}

_EXPLAINED: Final = "\n".join(f"  {name:16} {option.explained}" for name, option in SETTABLE.items())
SET_EPILOG: Final = f"""\b
Examples:
  lowkiq set OrderSync concurrency=10 batch_size=50
  lowkiq set OrderSync perform_timeout=none log_level=debug
  lowkiq set OrderSync weight=8                          beside queues with less, or none (1)
  lowkiq set OrderSync rate=100/60                       at most 100 jobs start in any 60 s
  lowkiq unset OrderSync concurrency
  lowkiq settings                                        all that is set, and what the code says (with -r)

\b
Nodes follow within a second or two, in place of what their code says, and so do those that start later, until it is
unset. Batches that run go on as they began. A weight counts in place of that of --queues; of log levels the lowest of a
node's queues; limits of alerts are for no node. There are:
{_EXPLAINED}
"""


@answering
def set_options(
    app: Lowkiq, queue: Queue, settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...")]
) -> Answer:
    """Sets options of a queue, which its nodes follow while they run."""
    values = dict(map(parse_live, settings))
    actions_on(app, queue).set(who=who(), **_plain(values))
    return counted("set", len(values), f" for {printable(queue, 200)}")


@answering
def unset_options(app: Lowkiq, queue: Queue, names: Annotated[list[str], typer.Argument(metavar="NAME...")]) -> Answer:
    """Has options of a queue be those of the code again."""
    count = actions_on(app, queue).unset(*names, who=who())
    return counted("unset", count, f" for {printable(queue, 200)}")


@answering
def settings(app: Lowkiq, queue: OneQueue = None) -> Answer:
    """Shows which options of queues are set, by whom and since when, beside those of the code."""
    if queue is not None:
        shards_count(app, queue)
    live = read_live(app.caller, app.settings.namespace)
    shown = {name: live[name] for name in sorted(live) if queue in {None, name}}
    return Answer(shown, _table(app, shown) if shown else "nothing is set: all is as the code says")


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Raises SettingsError for a name that is none, lest it be another argument."""
    if "who" in values:
        raise SettingsError(f"unknown live setting `who`, known are: {', '.join(sorted(SETTABLE))}")
    return dict(values)


def _table(app: Lowkiq, live: Mapping[str, Mapping[str, LiveSetting]]) -> Table:
    now, table = redis_time(app.caller), Table("queue", "setting", "is", "in the code", "by", "for", title="Settings")
    for queue, found in live.items():
        worker = app.workers.get(queue)
        for name, setting in found.items():
            code = "" if worker is None else str(getattr(worker, name, BESIDE_CODE.get(name)))
            code = str(getattr(app.settings, name)) if name in ALERT_LIMITS else code
            row = (queue, name, str(setting.value), code, setting.who, age(now - setting.at))
            table.add_row(*(printable(text, 100) for text in row))
    return table
