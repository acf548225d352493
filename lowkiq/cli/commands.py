"""
The `lowkiq` command: one node in the foreground, and what people ask of queues, nodes and the morgue. A command's
module is imported when that is called: help, completion and the version take none.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from lowkiq import __version__
from lowkiq.cli.given import Require, add_examples
from lowkiq.process.held_signals import release

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

#: Command → its function, or the group of those below it, in this package; and how its help begins.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "cancel": ("jobs.cancel", "Cancels jobs: what is queued of them is deleted, what runs is asked to stop."),
    "pause": ("flow.pause", "Pauses a queue: nothing of it starts until it is resumed."),
    "resume": ("flow.resume", "Resumes a paused queue."),
    "reshard": ("flow.reshard", "Gives a queue another number of shards while it is in use, or tells how far that is."),
    "hold": ("flow.hold", "Keeps ids from being run until they are released."),
    "release": ("flow.release_ids", "Has held ids run again."),
    "stop-waiting": ("flow.stop_waiting", "Has jobs that wait for others run without those."),
    "held": ("flow.held", "Lists the ids of a queue that are held: since when, by whom and why."),
    "tenants": ("flow.tenants", "Lists whose backlog is the largest, in a queue whose worker has fair_by."),
    "set": ("live.set_options", "Sets options of a queue, which its nodes follow while they run."),
    "unset": ("live.unset_options", "Has options of a queue be those of the code again."),
    "settings": (
        "live.settings",
        "Shows which options of queues are set, by whom and since when, beside those of the code.",
    ),
    "find": ("find.find", "Finds jobs by their ids, over all queues, and why they do not run."),
    "jobs": ("find.jobs", "Lists jobs of a queue in one state, and why they do not run."),
    "job": ("one_job.job", "Tells the story of a job: where it is and why, what it carries, its error."),
    "push": (
        "one_job.push",
        "Pushes a job, as the application would: it needs that (-r), whose worker checks the payload.",
    ),
    "perform": ("one_job.perform", "Runs a job here, in the foreground, that is dead or queued."),
    "undo": ("jobs.undo", "Undoes a deletion of a minute ago at most."),
    "incidents": (
        "nodes.incidents",
        "What happened to nodes and queues, and what people did, for 30 days, the newest first.",
    ),
    "track": ("flow.track", "Keeps what happens to jobs from now on; their pages show it, and the overview pins them."),
    "untrack": ("flow.untrack", "Tracks jobs no longer, and forgets what was kept."),
    "events": ("flow.events", "Tells what happens to jobs, as it happens."),
    "failures": (
        "jobs.failures",
        "Shows why jobs of a queue fail: retries and morgue by kind of error; or the last error of one job.",
    ),
    "alerts": ("alerts.alerts", "What is wrong with nodes, queues and Redis, since when, and what to do."),
    "owners": (
        "nodes.owners",
        "Which node has each shard, which is to have it, and why: by leases, and by what nodes say of themselves.",
    ),
    "new": ("new.new", "Makes a project that runs: an application, a worker, its test, and Compose for development."),
    "stats": ("flow.stats", "What each queue holds and does, in a line a queue; with --wide, all of its numbers."),
    "statistics": ("flow.statistics", "How long jobs of a queue waited and ran, by day."),
    "web": ("web.web", "Serves the web view: queues, nodes and jobs in a browser, an API, /metrics."),
    "doctor": ("node.doctor", "Examines Redis, queues, nodes and this machine, and says what to mend."),
    "morgue": ("jobs.morgue", "The jobs that failed too often."),
    "blocked": ("jobs.blocked", "The jobs that failed too often, and hold up their ids."),
    "recurring": ("recurring.recurring", "Jobs that recur."),
    "nodes": ("nodes.nodes", "Nodes, and what is wrong."),
}


class _Late(TyperGroup):
    """Has only names and first words of its commands, until one is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and made(name), rest


cli = typer.Typer(
    cls=_Late,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
)
for _name, (_, _help) in COMMANDS.items():
    cli.command(_name, help=_help)(lambda: None)


def made(name: str) -> Any:
    """The command of this name. Its help ends with its module's NAME_EPILOG, or an example."""
    place, attribute = COMMANDS[name][0].split(".")
    module = import_module(f"lowkiq.cli.{place}")
    found, only = getattr(module, attribute), typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        only.add_typer(found, name=name)
    else:
        only.command(name, epilog=getattr(module, f"{name.upper()}_EPILOG", None))(found)
    add_examples(only)
    return typer.main.get_group(only).commands[name]


def whole() -> Any:
    """`lowkiq` with all of its commands made, for who looks through them."""
    group: Any = typer.main.get_command(cli)
    group.commands = {name: made(name) for name in COMMANDS}
    return group


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
    from lowkiq.cli import node  # noqa: PLC0415 (which imports all that runs jobs)

    node.run(
        require,
        node_number=node_number,
        number_of_nodes=number_of_nodes,
        queues=queues,
        threads=threads,
        burst=burst,
    )
