"""The `lowkiq` command: one node in the foreground, and what people ask of queues, nodes and the morgue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, NoReturn

import msgspec
import typer

from lowkiq import Lowkiq, SettingsError, __version__, environment, log
from lowkiq.admin.alerts.redis import of_unreadable
from lowkiq.admin.limits import read_limits
from lowkiq.admin.past.history import read_earlier
from lowkiq.admin.past.statistics import KEPT_DAYS, read_statistics
from lowkiq.cli import tables
from lowkiq.cli.alerts import ALERTS_EPILOG, alerts
from lowkiq.cli.examples import add_examples
from lowkiq.cli.find import find
from lowkiq.cli.find import jobs as list_jobs
from lowkiq.cli.flow import (
    EVENTS_EPILOG,
    PAUSE_EPILOG,
    RESHARD_EPILOG,
    events,
    held,
    hold,
    pause,
    release_ids,
    reshard,
    resume,
    stop_waiting,
    tenants,
    told_of,
    track,
    untrack,
)
from lowkiq.cli.jobs import CANCEL_EPILOG, blocked, cancel, failures, morgue, undo
from lowkiq.cli.live import SET_EPILOG, set_options, settings, unset_options
from lowkiq.cli.new import new
from lowkiq.cli.nodes import INCIDENTS_EPILOG, OWNERS_EPILOG, incidents, owners
from lowkiq.cli.nodes import nodes as on_nodes
from lowkiq.cli.one_job import PERFORM_EPILOG, job, perform, push
from lowkiq.cli.opening import Answer, AsJson, Require, answering, clear_errors, fail, loaded, opened_app
from lowkiq.cli.queues import Queue
from lowkiq.cli.recurring import recurring
from lowkiq.doctor import command as examiner
from lowkiq.environment import ExitCode, code_of_import, parse_address
from lowkiq.errors import AppNotFound, LowkiqError
from lowkiq.node.node import Node
from lowkiq.process.ending import USUAL, finish
from lowkiq.process.held_signals import release
from lowkiq.process.signals import disarm, leave_on
from lowkiq.queue.call import redis_time
from lowkiq.queue.rates import read_waiting

EPILOG = """\b
Examples:
  lowkiq new shop                                        a project to begin with: a worker, its test, Compose
  lowkiq -r shop.jobs                                    one node that runs all shards
  lowkiq -r shop.jobs --node-number 0 --number-of-nodes 2
  lowkiq -r shop.jobs --queues mail,video --threads 20
  lowkiq -r shop.jobs --burst                            exit 0 once nothing is due or in flight
  lowkiq stats --json
  lowkiq statistics OrderSync --days 7                   how long jobs waited and ran
  lowkiq web -r shop.jobs                                the web view at http://127.0.0.1:8080/
  lowkiq nodes                                           who runs, who is missing, what nobody owns
  lowkiq owners OrderSync                                which node has each shard, and why
  lowkiq nodes restart 3 --wait                          quiet, resume, restart or dump a node of any machine
  lowkiq incidents                                       what happened, and who did what
  lowkiq alerts -r shop.jobs                             what is wrong now, since when, and what to do
  lowkiq doctor -r shop.jobs                             the same and more: Redis, rights, settings, this machine
  lowkiq cancel OrderSync 17 42                          delete what is queued, ask what runs to stop
  lowkiq pause OrderSync "stock-taking"                  nothing of it starts until lowkiq resume OrderSync
  lowkiq hold OrderSync 17 --reason "a customer called"   keep an id from running until lowkiq release OrderSync 17
  lowkiq reshard OrderSync 48                            another number of shards, while it is in use
  lowkiq tenants OrderSync                                whose backlog is the largest, where fair_by is set
  lowkiq set OrderSync concurrency=10                    nodes follow; unset undoes it, settings shows what is set
  lowkiq find 17                                         where that job is, in all queues
  lowkiq jobs OrderSync --state retrying                 those of one queue, by state, error or tag
  lowkiq job OrderSync 17                                its story: where it is and why, payloads, error
  lowkiq -r shop.jobs push OrderSync 17 '{"total": 5}'
  lowkiq -r shop.jobs perform OrderSync 17               run the job that failed in production here
  lowkiq failures OrderSync                              errors by kind; with an id, its traceback
  lowkiq blocked list OrderSync                          ids that wait for a person; also retry, skip, delete
  lowkiq morgue list OrderSync
  lowkiq morgue revive OrderSync 17 42                   or --all, --error, --pattern, --tag
"""

WEB_EPILOG = """\b
Examples:
  lowkiq web -r shop.jobs                                logs a link for a browser on this machine
  LOWKIQ_WEB_TOKEN=… lowkiq web -r shop.jobs --bind :8080
  LOWKIQ_WEB_USER=… LOWKIQ_WEB_PASSWORD=… lowkiq web --bind 10.0.0.5:8080 --read-only
  lowkiq web --bind :8080 --no-auth                      behind something that decides who gets here

\b
Where other machines can reach it, it wants credentials, from the environment: a command line shows in ps. Without any
it makes up a token, and logs a link with it. With --no-auth, LOWKIQ_WEB_HOSTS lists the names it answers to, beside
addresses. Without -r it knows only where Redis is, which is enough to see and act. LOWKIQ_WEB_PROXIES lists addresses
of proxies that are believed: what they tell of the path (X-Forwarded-Prefix) and, with --no-auth, of who somebody is.
"""

cli = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
)
cli.add_typer(morgue, name="morgue")
cli.add_typer(blocked, name="blocked")
cli.add_typer(recurring, name="recurring")
cli.add_typer(on_nodes, name="nodes")
COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "cancel": cancel, "pause": pause, "resume": resume, "reshard": reshard, "hold": hold, "release": release_ids,
    "stop-waiting": stop_waiting, "held": held, "tenants": tenants, "set": set_options, "unset": unset_options,
    "settings": settings, "find": find, "jobs": list_jobs, "job": job, "push": push, "perform": perform, "undo": undo,
    "incidents": incidents, "track": track, "untrack": untrack, "events": events, "failures": failures,
    "alerts": alerts, "owners": owners, "new": new,
}  # fmt: skip
#: Command → what its help ends with, if that is more than an example.
EPILOGS: Final[Mapping[str, str]] = {
    "cancel": CANCEL_EPILOG, "pause": PAUSE_EPILOG, "reshard": RESHARD_EPILOG, "set": SET_EPILOG,
    "perform": PERFORM_EPILOG, "incidents": INCIDENTS_EPILOG, "events": EVENTS_EPILOG, "alerts": ALERTS_EPILOG,
    "owners": OWNERS_EPILOG,
}  # fmt: skip
for _name, _command in COMMANDS.items():
    cli.command(_name, epilog=EPILOGS.get(_name))(_command)


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
    queues: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="These queues only; A=8,B=1 shares threads out. [LOWKIQ_QUEUES]"),
    ] = None,
    threads: Annotated[str | None, typer.Option(metavar="N", help="How many threads. [LOWKIQ_THREADS]")] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Exit 0 once nothing is due or in flight.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Runs one node in the foreground. TERM and INT drain it."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    context.obj = require
    if context.invoked_subcommand is not None:
        release()
        return
    with clear_errors():
        if require is None:
            raise SettingsError("which application? Say -r MODULE or -r MODULE:ATTR")
        _configure_log()
        number, count, is_numbered = _node_numbers(node_number, number_of_nodes)
        named = environment.find("--queues", queues, os.environ)
        several = environment.find("--threads", threads, os.environ)
        _take_signals()
        app = loaded(require)
    try:
        node = Node(
            app,
            node_number=number,
            number_of_nodes=count,
            is_elastic=not is_numbered,
            queues=environment.parse_queues(named) if named else None,
            threads=environment.parse_threads(several) if several else None,
            burst=burst,
            ends_process=True,
            source=require,
        )
    except LowkiqError as error:
        fail(str(error), code_of_import(error))
    _exit(node.run(), node.time_left)


def _configure_log() -> None:
    """Log to LOWKIQ_LOG_FILE, else to stderr; of variables that are nearly right it tells first."""
    path = environment.find("--log-file", None, os.environ)
    try:
        log.configure(path=Path(path.text).absolute() if path else None)
    except OSError as error:
        raise SettingsError(f"{path}: {error}") from error
    log.warn_of_misspelt(os.environ)


def _take_signals() -> None:
    """From here until the node takes them itself: there is nothing to drain yet."""
    disarm()
    drained = dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), ExitCode.DRAINED)
    leave_on({**drained, signal.SIGQUIT: ExitCode.ABANDONED})
    release()


def _node_numbers(number: str | None, count: str | None) -> tuple[int, int, bool]:
    """Number of the node, and of all, from options, else the environment, else 0 of 1; and whether anybody has said."""
    this = environment.find_node_number(number or None, os.environ)
    all_nodes = environment.find_number_of_nodes(count or None, os.environ)
    node_number = environment.parse_node_number(this) if this else 0
    number_of_nodes = environment.parse_number_of_nodes(all_nodes, lowest=0) if all_nodes else 1
    if node_number >= number_of_nodes:
        raise SettingsError(
            f"node number {node_number} of {number_of_nodes} nodes: numbers go from 0 to the number of nodes - 1 "
            "(--node-number or NODE_NUMBER, --number-of-nodes or NUMBER_OF_NODES)"
        )
    return node_number, number_of_nodes, bool(this or all_nodes)


@cli.command()
@answering
def stats(
    app: Lowkiq, wide: Annotated[bool, typer.Option("--wide", help="All numbers of each queue.")] = False
) -> Answer:
    """What each queue holds and does, in a line a queue; with --wide, all of its numbers."""
    metrics = app.metrics()
    now, namespace = redis_time(app.caller), app.settings.namespace
    limits = read_limits(app.caller, namespace, metrics)
    waiting = read_waiting(app.caller, namespace, list(metrics), now)
    more = {name: {"limit": limit} for name, limit in limits.items()}
    rated = {name: {"rated": row.jobs, "rated_until": row.until} for name, row in waiting.items()}
    rows = {
        name: msgspec.structs.asdict(row) | more.get(name, {}) | rated.get(name, {}) for name, row in metrics.items()
    }
    for alert in of_unreadable(app.caller.met.now()):
        typer.echo(f"{alert.kind}: {alert.text}", err=True)
    told = [f"{queue}: {limit.text}" for queue, limit in limits.items()]
    told += [*tables.of_waiting(waiting, now), *told_of(app)]
    if wide:
        return Answer(rows, [tables.of_queues(metrics), *told])
    earlier = read_earlier(app.caller, namespace, metrics)
    return Answer(rows, [*tables.plain(tables.in_short(metrics, earlier, now)), *told])


@cli.command()
@answering
def statistics(
    app: Lowkiq,
    queue: Queue,
    days: Annotated[int, typer.Option(min=1, max=KEPT_DAYS, help="The last so many days, in UTC.")] = 1,
) -> Answer:
    """How long jobs of a queue waited and ran, by day."""
    app.statistics(queue)  # raises for one that nobody knows
    found = read_statistics(app.caller, app.settings.namespace, queue, days)
    return Answer(found, tables.of_statistics(queue, found) if found else f"no job of {queue} has run in that time")


@on_nodes.callback(invoke_without_command=True)
def nodes(context: typer.Context, require: Require = None, as_json: AsJson = False) -> None:
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


@cli.command(epilog=WEB_EPILOG)
def web(
    context: typer.Context,
    require: Require = None,
    bind: Annotated[str, typer.Option(metavar="[HOST:]PORT", help="Where to listen.")] = "127.0.0.1:8080",
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    no_payloads: Annotated[bool, typer.Option("--no-payloads", help="Show sizes of payloads only.")] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Whoever reaches it may see and act; something else protects it.")
    ] = False,
    root_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where a proxy has it: /lowkiq. [LOWKIQ_WEB_ROOT_PATH]")
    ] = None,
) -> None:
    """Serves the web view: queues, nodes and jobs in a browser, an API, /metrics. TERM and INT end it."""
    try:
        from lowkiq.web import server  # noqa: PLC0415 (an extra, which other commands do without)
    except ModuleNotFoundError as error:
        fail(f"the web view needs {error.name}: pip install 'lowkiq[web]'", ExitCode.USAGE)
    with opened_app(require or context.obj) as app:
        _configure_log()
        disarm(but=(signal.SIGHUP,))
        code = server.serve(
            app,
            parse_address(bind),
            read_only=read_only,
            payloads=not no_payloads,
            no_auth=no_auth,
            root_path=root_path,
        )
    _exit(code)


@cli.command(epilog=examiner.EPILOG)
def doctor(context: typer.Context, require: Require = None, as_json: AsJson = False) -> None:
    """Examines Redis, queues, nodes and this machine, and says what to mend. Exits 1 when there is a problem."""
    try:
        findings = examiner.examine_app(require or context.obj)
    except (AppNotFound, SettingsError) as error:
        fail(str(error), code_of_import(error))
    if as_json:
        typer.echo(examiner.as_json(findings))
    else:
        tables.show(examiner.table(findings), examiner.summary(findings))
    _exit(0 if examiner.is_well(findings) else ExitCode.FAILED)


add_examples(cli)


def _exit(code: int, seconds: float = USUAL) -> NoReturn:
    """
    Ends as Python does, with what the application has registered for the end; but threads that a drain has abandoned,
    or that wait for Redis, do not hold the process.
    """
    os._exit(finish(code, seconds))
