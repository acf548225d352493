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
from lowkiq_supervisor.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.errors import UsageError
from lowkiq_supervisor.exit_codes import ExitCode
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.restart_policy import RestartMode
from lowkiq_supervisor.signals import hold_back

EXAMPLES = """
Examples:

\b
  lowkiq-supervisor --nodes 4 -r shop.jobs             four nodes; a private Redis if REDIS_URL isn't set
  lowkiq-supervisor --nodes 4 -r shop.jobs:app --burst run what is due, then exit 0
  NODE_NUMBER=jobs-1 NUMBER_OF_NODES=8 \\
    lowkiq-supervisor --nodes 4 -r shop.jobs           the second machine of two: nodes 4 to 7

Signals: TERM or ^C drains, a second ^C abandons running jobs, TSTP stops taking new ones.
Exit codes: 0 drained, 1 internal, 2 usage, 3 no node could boot, 4 crash loop, 5 killed at the deadline, 130 abandoned.
"""

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@cli.command(epilog=EXAMPLES)
def supervise(
    *,
    app: Annotated[
        str, typer.Option("--require", "-r", metavar="MODULE[:ATTR]", help="The module with the Lowkiq app.")
    ],
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
    state_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where the private Redis lives. [env: LOWKIQ_STATE_DIR] [default: .lowkiq]"),
    ] = None,
) -> None:
    """Run Lowkiq nodes: restart those that die, and end all of them gently."""
    try:
        options = Options.resolve(
            app=app,
            nodes=nodes,
            node_number=node_number,
            number_of_nodes=number_of_nodes,
            burst=burst,
            drain_timeout=drain_timeout,
            restart=restart,
            degraded=degraded,
            state_dir=state_dir,
            environ=os.environ,
        )
    except UsageError as error:
        print(f"lowkiq-supervisor: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.USAGE) from None
    log.configure()
    setproctitle(f"lowkiq: supervisor {nodes} nodes")
    raise typer.Exit(Arbiter(options, embedded=_embedded_redis(options)).run())


def _embedded_redis(options: Options) -> EmbeddedRedis | None:
    """A private Redis, if nobody has named another."""
    if options.redis_url:
        return None
    if str(options.state_dir) == os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]:
        structlog.stdlib.get_logger("supervisor").warning(
            "jobs are kept in RUNTIME_DIRECTORY, which systemd empties when the service stops: set LOWKIQ_STATE_DIR",
            directory=str(options.state_dir),
        )
    return EmbeddedRedis(options.state_dir)


def main() -> None:
    """Entry point of `lowkiq-supervisor`."""
    hold_back()
    cli(prog_name="lowkiq-supervisor")
