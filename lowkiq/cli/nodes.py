"""Commands on single nodes, `owners` of shards, and `incidents`."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Column, Table

from lowkiq import Lowkiq, SettingsError, clock
from lowkiq.admin.alerts.noted import INCIDENTS
from lowkiq.admin.beats.dumps import read_dump
from lowkiq.admin.beats.hands import HANDS, HandName, HandRequest, ask, read_hand
from lowkiq.admin.beats.health import forget, read_gone, read_health
from lowkiq.admin.beats.members import read_placements
from lowkiq.admin.beats.owners import owners_of
from lowkiq.admin.metrics import read_layouts, read_shards
from lowkiq.admin.past.incidents import Incident, NewIncident, read_incidents, try_to_note
from lowkiq.admin.words import age, listed, moment, plural, printable
from lowkiq.cli import tables
from lowkiq.cli.given import AsJson, Require
from lowkiq.cli.opening import Answer, answering, fail, who
from lowkiq.cli.queues import OneQueue, shards_count
from lowkiq.environment import ExitCode
from lowkiq.errors import short, unknown_option
from lowkiq.queue.call import redis_time
from lowkiq.queue.shard import shards_of

OWNERS_EPILOG = """\b
Examples:
  lowkiq owners                                          the shards of all queues
  lowkiq owners OrderSync
  lowkiq owners OrderSync --json | jq -r '.[] | select(.why != "share") | .says'
  lowkiq incidents --kind moved                          what has moved, between whom and why
"""


@answering
def owners(app: Lowkiq, queue: OneQueue = None) -> Answer:
    """Which node has each shard, which is to have it, and why: by leases, and by what nodes say of themselves."""
    caller, namespace = app.caller, app.settings.namespace
    if queue is not None:
        shards_count(app, queue)  # there must be one
    layouts = {name: layout for name, layout in read_layouts(caller, namespace).items() if queue in {None, name}}
    shards = read_shards(caller, shards_of(namespace, layouts))
    nodes, placements = read_health(caller, namespace), read_placements(caller, namespace)
    found = owners_of(nodes, shards, placements, redis_time(caller))
    names = "queue", Column("shard", justify="right"), "owner", "goes to", "why"
    table = Table(*names, title="Owners")
    for row in found:
        target = str(row.target) if row.target and row.target != row.owner else ""
        texts = str(row.owner or "nobody"), target, row.says
        table.add_row(escape(printable(row.queue, None)), str(row.shard), *map(escape, texts))
    return Answer(found, table)


NODES_EPILOG = """\b
Examples:
  lowkiq nodes
  lowkiq nodes dump 3 --wait                             by number, or by name, as lowkiq nodes --json shows it
  lowkiq nodes restart web-1:4711:0a1b2c3d4e5f --wait
  lowkiq nodes forget web-7                              a machine that is gone for good is told of no longer

\b
A node of any machine is asked through Redis. It hears within seconds and does it at most once; a restart is its
supervisor's doing. --wait tells the outcome, and exits 1 if it was refused or not heard. Nobody can stop a node so.
"""
INCIDENTS_EPILOG = """\b
Examples:
  lowkiq incidents
  lowkiq incidents --kind death --limit 10
  lowkiq incidents --queue OrderSync --json
  lowkiq incidents --who ann                             what somebody did
"""

#: Seconds between looks for an answer; and for which one is awaited: a successor may take its time.
LOOK_INTERVAL, AWAITED = 0.2, 300.0

nodes = typer.Typer(help="Nodes, and what is wrong.", rich_markup_mode=None, epilog=NODES_EPILOG)

Name = Annotated[str, typer.Argument(metavar="NODE", help="Its name or, if no other has it, its number.")]
Wait = Annotated[bool, typer.Option("--wait", help="Until the node has done it; a dump is printed.")]


def _asking(action: HandName) -> Callable[..., None]:
    """The command that asks for it."""

    def command(app: Lowkiq, node: Name, wait: Wait = False, as_json: bool = False) -> Answer:
        request = ask(app.caller, app.settings.namespace, _find(app, node), action, who())
        how = "" if wait else " (--wait tells the outcome)"
        typer.echo(f"{action} was asked of {printable(request.node)}{how}", err=wait or as_json)
        if wait:
            request = _await(app, request)
        dumped = read_dump(app.caller, app.settings.namespace, request.dump) if request.dump else None
        text = {"text": dumped[1]} if dumped else {}
        return Answer(msgspec.structs.asdict(request) | text, text.values(), not wait or request.state == "done")

    return answering(command)


for _action, _hand in HANDS.items():
    nodes.command(_action, help=_hand.does)(_asking(_action))


@nodes.callback(invoke_without_command=True)
def show_nodes(context: typer.Context, require: Require = None, as_json: AsJson = False) -> None:
    """Which nodes live, what they run, and what is wrong. Exits 1 when something is."""
    context.obj = require or context.obj
    if context.invoked_subcommand is None:
        _nodes(context, require, as_json)


@answering
def _nodes(app: Lowkiq) -> Answer:
    found = app.nodes()
    running = tables.of_running(found)
    shown = [tables.of_nodes(found), *([running] if running else [])]
    return Answer(found, chain(shown, tables.of_alerts(found.alerts, app.caller)), found.is_well)


@nodes.command("forget")
@answering
def forget_machine(
    app: Lowkiq, host: Annotated[str, typer.Argument(metavar="HOST", help="As the alert names it.")]
) -> Answer:
    """Forgets the nodes of a machine that went away without saying goodbye, so that no alert tells of them any more."""
    caller, namespace = app.caller, app.settings.namespace
    gone = read_gone(caller, namespace)
    found = [node for node in gone if host in {node.host, node.node, printable(node.host, 60)}]
    if not found:
        known = listed(sorted({printable(node.host, 60) for node in gone})) or "none"
        raise SettingsError(f"no node of {short(host)} has gone without a goodbye within a day: of {known}")
    for node in found:
        forget(caller, namespace, node.node)
    are = "is" if len(found) == 1 else "are"
    says = f"{plural(len(found), 'node')} of {printable(found[0].host, 60)} {are} forgotten"
    key = f"forget:{found[0].node}"
    new = NewIncident(key=key, kind="forget", severity="note", says=says, host=found[0].host, who=who())
    try_to_note(caller, namespace, new)
    return Answer({"forgotten": len(found)}, says)


@answering
def incidents(
    app: Lowkiq,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE")] = None,
    node: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    kind: Annotated[str | None, typer.Option(help=f"{listed(INCIDENTS)}.")] = None,
    by: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who did it: a part of the name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 50,
) -> Answer:
    """What happened to nodes and queues, and what people did, for 30 days, the newest first."""
    if kind is not None and kind not in INCIDENTS:
        raise unknown_option("kind of incident", kind, INCIDENTS)
    found = read_incidents(app.caller, app.settings.namespace, queue=queue, node=node, kind=kind, who=by, limit=limit)
    none = f"no {'such ' if queue or node or kind or by else ''}incident within 30 days"
    return Answer(found, [*map(_line, found)] or none)


def _line(row: Incident) -> str:
    ends = " (it goes on)" if row.goes_on else f" (for {age(row.until - row.at)})" if row.until else ""
    who = f", by {printable(row.who, 80)}" if row.who else ""
    where = f" [{printable(row.node or row.host, 80)}]" if row.node or row.host else ""
    return f"{moment(row.at)}  {printable(row.kind, 40)}: {printable(row.says, 500)}{ends}{who}{where}"


def _find(app: Lowkiq, name: str) -> str:
    """The node's name. Raises SettingsError, which names those that there are."""
    found = [node for node in app.nodes().nodes if name in {node.node, str(node.node_number)}]
    if len(found) == 1:
        return found[0].node
    known = listed([node.node for node in (found or app.nodes().nodes)]) or "none"
    said, there = short(name), f"name one of {known}" if known != "none" else "there are none: lowkiq nodes"
    raise SettingsError(f"{'several nodes have' if found else 'no node has'} the name or number {said}: {there}")


def _await(app: Lowkiq, request: HandRequest) -> HandRequest:
    deadline, told = clock.monotonic() + AWAITED, ""
    while True:
        now, found = read_hand(app.caller, app.settings.namespace, request.id)
        if found is None or found.is_unheard(now):
            fail("it does not hear: see its last beat, its machine and its log", ExitCode.FAILED)
        if (line := f"{found.state}: {found.says}".removesuffix(": ")) != told:
            typer.echo(printable(line, 500), err=True)
            told = line
        if found.is_over:
            return found
        if clock.monotonic() > deadline:
            fail(f"it was not done within {AWAITED:.0f} s; lowkiq incidents tells what happens", ExitCode.FAILED)
        time.sleep(LOOK_INTERVAL)
