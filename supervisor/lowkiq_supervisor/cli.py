"""The command line of `lowkiq-supervisor`."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

from lowkiq import log
from lowkiq.environment import ExitCode
from lowkiq.errors import SettingsError
from lowkiq.log import get_logger
from lowkiq.process.ending import finish
from lowkiq.process.held_signals import release
from lowkiq.process.place import runtime_directory
from lowkiq.process.title import set_title
from lowkiq.version import VERSION
from lowkiq_supervisor.arbiter import Arbiter
from lowkiq_supervisor.control import subcommands
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.options import OPTIONS, Options, flag
from lowkiq_supervisor.processes.check import EndedEarly, check_import, check_port
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.preload import preload as preload_app

EXAMPLES = """
Examples:

\b
  lowkiq-supervisor --nodes 4 -r shop.jobs             four nodes; a private Redis if REDIS_URL isn't set
  lowkiq-supervisor --nodes 4 -r shop.jobs:app --burst run what is due, then exit 0
  lowkiq-supervisor --nodes auto -r shop.jobs          one node a core; the same on each of several machines
  lowkiq-supervisor --nodes 2..8 -r shop.jobs          as many as the load needs, from two to eight
  lowkiq-supervisor scale 6                            six from now on; scale auto: as the load needs again
  NODE_NUMBER=jobs-1 NUMBER_OF_NODES=8 \\
    lowkiq-supervisor --nodes 4 -r shop.jobs           pinned: the second machine of two, nodes 4 to 7
  lowkiq-supervisor -r shop.jobs --web 127.0.0.1:8080  with the web view, as a process of its own
  lowkiq-supervisor -r shop.jobs --reload              for development: nodes follow the code
  lowkiq-supervisor status --watch                     what it does; restart, quiet, dump, stop: likewise

\b
Signals:
  TERM, INT  drain: running jobs may finish; a second INT, or QUIT, abandons them
  HUP        restart the nodes one after another, each ready before the next (with --preload: the same code);
             drain, if it is the terminal's end
  TSTP       quiet: take no new jobs
  TTIN       every node dumps its threads
  USR1       nothing: a --log-file that was moved away is made again by itself
  USR2       write the status to the log

Exit codes: 0 drained, 1 internal, 2 usage, 3 a person must change something first,
4 no node was ready for a minute, 5 killed at the deadline, 130 abandoned.
"""

cli = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False, rich_markup_mode=None
)
subcommands.add_to(cli)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the parameters that the table of options describes."""
    own = inspect.signature(command, eval_str=True).parameters
    parameters = [own["context"], own["version"]]
    types = get_type_hints(Options)
    for field in dataclasses.fields(Options):
        if (option := OPTIONS.get(field.name)) is None:
            continue
        names, text = option.names or (flag(field.name),), option.help
        if option.metavar and isinstance(field.default, float):
            text += f" [default: {field.default:g}]"
        kind, default = (str | None, None) if option.metavar else (types[field.name], field.default)
        annotation: Any = Annotated[kind, typer.Option(*names, metavar=option.metavar, help=text, hidden=option.hidden)]
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


@cli.callback(invoke_without_command=True, epilog=EXAMPLES)
@_with_options
def supervise(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    **given: Any,
) -> None:
    """Run Lowkiq nodes: restart those that die, and end all of them gently."""
    if version:
        print(VERSION)
        raise typer.Exit
    if context.invoked_subcommand is not None:
        release()
        context.obj = given["state_dir"]
        return
    try:
        options = Options.resolve(environ=os.environ, **given)
        log.configure("debug", options.log_file)
        log.warn_of_misspelt(os.environ)
    except (SettingsError, OSError) as error:
        print(f"lowkiq-supervisor: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.USAGE) from None
    set_title(f"lowkiq: supervisor {options.nodes} nodes [starting]")
    try:
        embedded = _set_out(options)
    except EndedEarly as ended:
        _leave(ended.code)
    except BootError as error:
        get_logger("supervisor").error("cannot_start", error=str(error))
        _leave(error.code)
    _leave(Arbiter(options, embedded=embedded).run())


def _set_out(options: Options) -> EmbeddedRedis | None:
    """Check what can be checked before anything is started; preload the application; returns the Redis to start."""
    is_embedded = not options.no_embedded_redis and not options.redis_url
    embedded = EmbeddedRedis(options.state_dir) if is_embedded else None
    environment = options.node_environment() | (embedded.environment if embedded else {})
    if options.web is not None:
        check_port(options.web)
    # Python tells old byte code by the second and the size: a quick edit would be overlooked.
    sys.dont_write_bytecode |= options.reload
    if options.preload:
        preload_app(options.app, environment, options.boot_timeout)
    else:
        check_import(options, environment)
    if embedded is not None:
        _tell_of_redis(options)
    return embedded


def _tell_of_redis(options: Options) -> None:
    """Nobody has named a Redis: there will be a private one."""
    logger = get_logger("supervisor")
    logger.info(
        "embedded_redis",
        hint="REDIS_URL isn't set: nodes get a private Redis. If the app names another: --no-embedded-redis",
    )
    if str(options.state_dir) == runtime_directory(os.environ):
        logger.warning(
            "jobs_in_runtime_directory",
            directory=str(options.state_dir),
            hint="systemd empties it when the service stops: set LOWKIQ_STATE_DIR",
        )


def _leave(code: int) -> NoReturn:
    """What a preloaded application has registered or started neither holds the process nor changes its exit code."""
    os._exit(finish(code))


def run() -> None:
    """Read the command line, with signals held back, and do what it says."""
    cli(prog_name="lowkiq-supervisor")
