"""The command line of `lowkiq-supervisor`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import structlog
import typer
from setproctitle import setproctitle

from lowkiq_supervisor import log
from lowkiq_supervisor.arbiter import Arbiter
from lowkiq_supervisor.control import commands
from lowkiq_supervisor.errors import BootError, UsageError
from lowkiq_supervisor.exit_codes import ExitCode
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.preload import preload as preload_app
from lowkiq_supervisor.restart_policy import RestartMode
from lowkiq_supervisor.signals import hold_back, let_go

EXAMPLES = """
Examples:

\b
  lowkiq-supervisor --nodes 4 -r shop.jobs             four nodes; a private Redis if REDIS_URL isn't set
  lowkiq-supervisor --nodes 4 -r shop.jobs:app --burst run what is due, then exit 0
  NODE_NUMBER=jobs-1 NUMBER_OF_NODES=8 \\
    lowkiq-supervisor --nodes 4 -r shop.jobs           the second machine of two: nodes 4 to 7
  lowkiq-supervisor -r shop.jobs --web 127.0.0.1:8080  with the web view, as a process of its own
  lowkiq-supervisor status --watch                     what a running one does; restart, quiet, dump, stop: likewise

\b
Signals:
  TERM, INT  drain: running jobs may finish; a second INT, or QUIT, abandons them
  HUP        restart the nodes one after another, each ready before the next (with --preload: the same code)
  TSTP       quiet: take no new jobs
  TTIN       every node dumps its threads
  USR2       write the status to the log

Exit codes: 0 drained, 1 internal, 2 usage, 3 no node could boot, 4 crash loop, 5 killed at the deadline, 130 abandoned.
"""

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
commands.add_to(cli)


@cli.callback(invoke_without_command=True, epilog=EXAMPLES)
def supervise(
    context: typer.Context,
    *,
    app: Annotated[
        str | None, typer.Option("--require", "-r", metavar="MODULE[:ATTR]", help="The module with the Lowkiq app.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many nodes (processes) to run here.")] = 1,
    burst: Annotated[bool, typer.Option("--burst", help="Exit 0 once nothing is due or in flight.")] = False,
    node_number: Annotated[
        str | None,
        typer.Option(metavar="N", help="This machine's number, from 0, or a name like jobs-3. [env: NODE_NUMBER]"),
    ] = None,
    number_of_nodes: Annotated[
        str | None,
        typer.Option(metavar="N", help="All nodes on all machines. [env: NUMBER_OF_NODES] [default: --nodes]"),
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="How long running jobs may take to finish. [default: 25]"),
    ] = None,
    restart: Annotated[RestartMode, typer.Option(help="Which nodes that ended to start again.")] = RestartMode.ALWAYS,
    degraded: Annotated[
        bool, typer.Option("--degraded", help="Keep the other nodes when one is in a crash loop.")
    ] = False,
    preload: Annotated[
        bool,
        typer.Option(
            "--preload", help="Import the app once, before forking: saves memory. A restart by HUP keeps the old code."
        ),
    ] = False,
    hang_timeout: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="Silence after which a node is killed; 0: never. [default: 30]"),
    ] = None,
    boot_timeout: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="The same until it is ready. [default: 120]")
    ] = None,
    max_rss: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Replace a node above about this memory, such as 512M.")
    ] = None,
    max_jobs: Annotated[str | None, typer.Option(metavar="N", help="Replace a node after about so many jobs.")] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="TIME", help="Replace a node after about this time, such as 6h.")
    ] = None,
    no_embedded_redis: Annotated[
        bool,
        typer.Option(
            "--no-embedded-redis", help="Start no private Redis: the app names its own by Lowkiq(redis_url=…)."
        ),
    ] = False,
    state_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="For the control socket and the private Redis. [env: LOWKIQ_STATE_DIR] [default: .lowkiq]",
        ),
    ] = None,
    web: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve the web view here. Others than this machine need credentials."),
    ] = None,
    web_read_only: Annotated[bool, typer.Option("--web-read-only", help="Only show: no actions on jobs.")] = False,
    web_no_payloads: Annotated[bool, typer.Option("--web-no-payloads", help="Show payloads' sizes only.")] = False,
    web_no_auth: Annotated[
        bool, typer.Option("--web-no-auth", help="Let everybody in: something else protects the web view.")
    ] = False,
) -> None:
    """Run Lowkiq nodes: restart those that die, and end all of them gently."""
    if context.invoked_subcommand is not None:
        let_go()
        context.obj = state_dir
        return
    try:
        if app is None:
            raise UsageError("--require is missing: name the module with the app, such as -r shop.jobs")  # noqa: TRY301
        options = Options.resolve(
            app=app,
            nodes=nodes,
            node_number=node_number,
            number_of_nodes=number_of_nodes,
            burst=burst,
            drain_timeout=drain_timeout,
            restart=restart,
            degraded=degraded,
            preload=preload,
            hang_timeout=hang_timeout,
            boot_timeout=boot_timeout,
            max_rss=max_rss,
            max_jobs=max_jobs,
            max_age=max_age,
            state_dir=state_dir,
            web=web,
            web_read_only=web_read_only,
            web_payloads=not web_no_payloads,
            web_no_auth=web_no_auth,
            environ=os.environ,
        )
    except UsageError as error:
        print(f"lowkiq-supervisor: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.USAGE) from None
    log.configure()
    setproctitle(f"lowkiq: supervisor {nodes} nodes [starting]")
    embedded = None if no_embedded_redis else _embedded_redis(options)
    if options.preload:
        _preload(options, embedded)
    raise typer.Exit(Arbiter(options, embedded=embedded).run())


def _embedded_redis(options: Options) -> EmbeddedRedis | None:
    """A private Redis, if nobody has named another."""
    if options.redis_url:
        return None
    logger = structlog.stdlib.get_logger("supervisor")
    logger.info("REDIS_URL isn't set: nodes get a private Redis. If the app names another: --no-embedded-redis")
    if str(options.state_dir) == os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]:
        logger.warning(
            "jobs are kept in RUNTIME_DIRECTORY, which systemd empties when the service stops: set LOWKIQ_STATE_DIR",
            directory=str(options.state_dir),
        )
    return EmbeddedRedis(options.state_dir)


def _preload(options: Options, embedded: EmbeddedRedis | None) -> None:
    try:
        preload_app(options.app, options.node_environment() | (embedded.environment() if embedded else {}))
    except BootError as error:
        structlog.stdlib.get_logger("supervisor").error("can't start", error=str(error))
        raise typer.Exit(ExitCode.BOOT) from None


def main() -> None:
    """Entry point of `lowkiq-supervisor`."""
    hold_back()
    cli(prog_name="lowkiq-supervisor")
