"""The `lowkiq` command: one node in the foreground, and looks at queues and the morgue."""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from redis.exceptions import RedisError
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lowkiq import Job, Lowkiq, LowkiqError, SettingsError, __version__, clock, log
from lowkiq.errors import AppNotFound
from lowkiq.importing import load_app
from lowkiq.node.node import Node
from lowkiq.store.connect import redact
from lowkiq.store.metrics import QueueMetrics
from lowkiq.store.nodes import Nodes

EXIT_FAILED, EXIT_USAGE = 1, 2

#: Unowned shards that are named one by one.
MANY = 20

EPILOG = """\b
Examples:
  lowkiq -r shop.jobs                                    one node that runs all shards
  lowkiq -r shop.jobs --node-number 0 --number-of-nodes 2
  lowkiq -r shop.jobs --burst                            exit 0 once nothing is due or in flight
  lowkiq stats --json
  lowkiq nodes                                           who runs, who is missing, what nobody owns
  lowkiq morgue list OrderSync
  lowkiq morgue revive OrderSync 17 42                   or --all
"""

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
)
morgue = typer.Typer(no_args_is_help=True, help="The jobs that failed too often.", rich_markup_mode=None)
cli.add_typer(morgue, name="morgue")

Require = Annotated[
    str | None,
    typer.Option(
        "-r", "--require", metavar="MODULE[:ATTR]", help="The application; the current directory is importable."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...")]
All = Annotated[bool, typer.Option("--all", help="All of the queue's morgue.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def main() -> None:
    """The command's entry point."""
    cli(prog_name="lowkiq")


@cli.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    require: Require = None,
    node_number: Annotated[
        str | None,
        typer.Option(metavar="N", help="This node, from 0; a pod name such as jobs-3 will do. [NODE_NUMBER, else 0]"),
    ] = None,
    number_of_nodes: Annotated[
        str | None, typer.Option(metavar="N", help="How many there are. [NUMBER_OF_NODES, else 1]")
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Exit 0 once nothing is due or in flight.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Runs one node in the foreground. TERM and INT drain it."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    context.obj = require
    if context.invoked_subcommand is not None:
        return
    with _clear_errors():
        if require is None:
            raise SettingsError("which application? Say -r MODULE or -r MODULE:ATTR")
        log.configure()
        number, count = node_numbers(node_number, number_of_nodes, os.environ)
        node = Node(load_app(require), node_number=number, number_of_nodes=count, burst=burst)
        code = node.run()
    # Threads that a drain has abandoned must not hold the process, nor run into an interpreter that shuts down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def node_numbers(number: str | None, count: str | None, environment: Mapping[str, str]) -> tuple[int, int]:
    """
    Which node of how many: from options, else NODE_NUMBER and NUMBER_OF_NODES, else the original's names of them.

    Raises:
        SettingsError: names the source and the value.
    """
    sources = (
        ("--node-number", number, "NODE_NUMBER", "0"),
        ("--number-of-nodes", count, "NUMBER_OF_NODES", "1"),
    )
    numbers = []
    for option, given, name, default in sources:
        values = {option: given, name: environment.get(name), f"LOWKIQ_{name}": environment.get(f"LOWKIQ_{name}")}
        source, text = next(((source, text) for source, text in values.items() if text), (option, default))
        match = re.fullmatch(r"(?:.*-)?(\d{1,9})", text) if name == "NODE_NUMBER" else re.fullmatch(r"(\d{1,9})", text)
        if not match:
            raise SettingsError(
                f"{source} is {text!r}: it must be a number from 0, or a name that ends in one (jobs-3)"
            )
        numbers.append(int(match[1]))
    node_number, number_of_nodes = numbers
    if node_number >= number_of_nodes:
        raise SettingsError(
            f"node number {node_number} of {number_of_nodes} nodes: numbers go from 0 to the number of nodes - 1 "
            "(--node-number or NODE_NUMBER, --number-of-nodes or NUMBER_OF_NODES)"
        )
    return node_number, number_of_nodes


@cli.command()
def stats(context: typer.Context, require: Require = None, as_json: AsJson = False) -> None:
    """What each queue holds and has done."""
    with _clear_errors(), _app(require or context.obj) as app:
        metrics = app.metrics()
        if as_json:
            typer.echo(json.dumps({name: msgspec.structs.asdict(row) for name, row in metrics.items()}))
            return
        table = Table("queue", *_numeric(msgspec.structs.fields(QueueMetrics)), title="Queues")
        for name, row in metrics.items():
            values = msgspec.structs.asdict(row)
            table.add_row(name, *(f"{value:,.1f} s" if key == "lag" else f"{value:,}" for key, value in values.items()))
        _print(table)


@cli.command()
def nodes(context: typer.Context, require: Require = None, as_json: AsJson = False) -> None:
    """Which nodes live, and what is wrong. Exits 1 when something is."""
    with _clear_errors(), _app(require or context.obj) as app:
        found = app.nodes()
        if as_json:
            typer.echo(msgspec.json.encode(found).decode())
        else:
            _print(_node_table(found))
            for line in _troubles(found):
                typer.echo(line)
        if not found.is_well:
            raise typer.Exit(EXIT_FAILED)


def _node_table(found: Nodes) -> Table:
    numbers = (
        "number",
        "pid",
        "up",
        "beat",
        "busy",
        "shards",
        "waits for",
        "processed",
        "failed",
        "RSS",
        "CPU",
        "Redis",
    )
    table = Table("node", "state", *(Column(name, justify="right") for name in numbers), title="Nodes")
    now = clock.real()
    for node in found.nodes:
        busy = sum(thread.queue is not None for thread in node.threads)
        table.add_row(
            escape(_printable(node.host)),
            "late" if node.is_late else escape(_printable(node.state)),
            f"{node.node_number} of {node.number_of_nodes}",
            str(node.pid),
            str(datetime.timedelta(seconds=int(now - node.started_at))),
            f"{node.beat_age:.0f} s",
            f"{busy} of {len(node.threads)}",
            str(sum(map(len, node.owned.values()))),
            str(sum(len(shards) for queues in node.waited_for.values() for shards in queues.values())),
            f"{node.processed:,}",
            f"{node.failed:,}",
            f"{node.rss / 2**20:,.0f} MiB",
            f"{node.cpu_percent:.0f} %",
            f"{node.redis_round_trip * 1000:.1f} ms" if node.redis_round_trip is not None else "",
        )
    return table


def _troubles(found: Nodes) -> Iterator[str]:
    """What is wrong, a line each."""
    if not found.nodes:
        yield "no node has been heard of for half a minute"
    for name in found.late:
        yield f"late: {_printable(name)} has not been heard of for a while; its shards move on when its lease ends"
    if found.missing:
        yield f"missing: node numbers {', '.join(map(str, found.missing))}; nobody else takes their part"
    if found.doubled:
        yield f"doubled: node numbers {', '.join(map(str, found.doubled))}; all but one stand by. Check NODE_NUMBER"
    for shard in found.unowned[:MANY]:
        lag = -(shard.due_in or 0)
        yield f"unowned: shard {shard.shard} of queue {shard.queue} has jobs due and no node ({lag:.0f} s late)"
    if len(found.unowned) > MANY:
        yield f"unowned: {len(found.unowned) - MANY} more"


@morgue.command("list")
def morgue_list(
    context: typer.Context,
    queue: Queue,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 50,
    require: Require = None,
    as_json: AsJson = False,
) -> None:
    """Shows the newest jobs of a queue's morgue, with their errors."""
    with _clear_errors(), _app(require or context.obj) as app:
        jobs = app.queries(queue, _shards_count(app, queue)).morgue_rev_range_by_updated_at(limit=limit)
        if as_json:
            typer.echo(json.dumps([_summary(job) for job in jobs]))
            return
        table = Table("id", "payloads", "since", "error", title=f"Morgue of {queue}")
        for job in jobs:
            row = _summary(job)
            table.add_row(
                escape(_printable(job.id)), str(row["payloads"]), row["since"], escape(_printable(row["error"]))
            )
        _print(table)


@morgue.command("revive")
def morgue_revive(
    context: typer.Context, queue: Queue, ids: Ids = None, every: All = False, require: Require = None
) -> None:
    """Returns jobs to the queue, as fresh ones that are due now."""
    with _clear_errors(), _app(require or context.obj) as app:
        actions = app.actions(queue, _shards_count(app, queue))
        count = actions.morgue_queue_up_all_jobs() if _all_or(ids, every) else actions.morgue_queue_up(ids or ())
        typer.echo(f"{count} revived")


@morgue.command("delete")
def morgue_delete(
    context: typer.Context,
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    yes: Yes = False,
    require: Require = None,
) -> None:
    """Deletes jobs for good. With --all it tells how many, and asks."""
    with _clear_errors(), _app(require or context.obj) as app:
        actions = app.actions(queue, _shards_count(app, queue))
        if _all_or(ids, every):
            if not yes:
                typer.confirm(
                    f"Delete all {app.metrics()[queue].morgue_length} jobs in the morgue of {queue}?", abort=True
                )
            count = actions.morgue_delete_all_jobs()
        else:
            count = actions.morgue_delete(ids or ())
        typer.echo(f"{count} deleted")


@contextmanager
def _app(require: str | None) -> Iterator[Lowkiq]:
    """The application that was named, else one that only knows where Redis is."""
    app = load_app(require) if require else Lowkiq()
    try:
        yield app
    except RedisError as error:
        _fail(f"can't use Redis at {redact(app.settings.redis_url)}: {error}", EXIT_FAILED)
    finally:
        app.close()


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except (SettingsError, AppNotFound) as error:
        _fail(str(error), EXIT_USAGE)
    except LowkiqError as error:
        _fail(str(error), EXIT_FAILED)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"lowkiq: {message}", err=True)
    raise typer.Exit(code)


def _shards_count(app: Lowkiq, queue: str) -> int:
    queues = app.queues()
    if queue not in queues:
        raise SettingsError(f"no queue {queue!r} here; known are: {', '.join(queues) or 'none'}")
    return queues[queue]


def _all_or(ids: list[str] | None, every: bool) -> bool:
    if bool(ids) == every:
        raise SettingsError("say which: ids, or --all")
    return every


def _summary(job: Job) -> dict[str, Any]:
    since = datetime.datetime.fromtimestamp(job.perform_in, datetime.UTC).isoformat(timespec="seconds")
    return {"id": job.id, "payloads": job.payload_count, "since": since, "error": job.error or ""}


def _printable(text: str) -> str:
    """Ids and errors are hostile: no control characters reach the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _numeric(fields: tuple[msgspec.structs.FieldInfo, ...]) -> list[Any]:
    return [Column(field.name, justify="right") for field in fields]


def _print(table: Table) -> None:
    # Piped, a table has no terminal to fit: its rows stay whole.
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
