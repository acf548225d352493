"""
The subcommands of `lowkiq-supervisor`: each asks the running supervisor and prints what it says.

Exit codes of all of them: 0 done, 1 degraded or refused, 2 unreachable.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from lowkiq.environment import state_directory
from lowkiq_supervisor.control import ping as control_ping
from lowkiq_supervisor.control.client import ask, follow
from lowkiq_supervisor.errors import CommandRefused, Unreachable

OK, DEGRADED, UNREACHABLE = 0, 1, 2

#: Seconds between two looks of --watch.
WATCH_INTERVAL = 1.0
#: Seconds that a rolling restart is waited for: a deployment should not hang for ever on a node that never gets ready.
AN_HOUR = 3600.0
#: Seconds for nodes to write their dumps: they look at their signals about at once. And for py-spy to read the others.
DUMP_WAIT, SPY_WAIT = 0.7, 5.0

Given = ParamSpec("Given")
StateDirOption = Annotated[
    str | None, typer.Option(metavar="DIR", help="As given to the supervisor. [env: LOWKIQ_STATE_DIR]")
]


def add_to(cli: typer.Typer) -> None:
    for command in (status, ping, dump, quiet, restart, scale, stop):
        cli.command()(_ending_by_code(command))


def status(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh it every second, until ^C.")] = False,
    state_dir: StateDirOption = None,
) -> int:
    """Show every node. Exits 0 if all is well, 1 if degraded, 2 if no supervisor answers."""
    place = _place(context, state_dir)
    if watch and not as_json:
        return _watch(place)
    found = ask(place, "status")
    if as_json:
        print(json.dumps({name: value for name, value in found.items() if name != "ok"}, indent=2))
    else:
        from rich.console import Console  # noqa: PLC0415 - the supervisor itself has no use for it

        from lowkiq_supervisor.control.table import render  # noqa: PLC0415

        # Into a file or a pipe, rows are as long as they are.
        Console(width=None if sys.stdout.isatty() else 200).print(render(found))
    return OK if found["supervisor"]["healthy"] else DEGRADED


def ping(
    context: typer.Context,
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Exit 1 where `status` does, too.")] = False,
    state_dir: StateDirOption = None,
) -> int:
    """For probes: whether the supervisor answers. Exits 0 if it does, 2 if not; takes a tenth of what status does."""
    return control_ping.ping(str(_place(context, state_dir)), ready=ready)


def dump(context: typer.Context, *, state_dir: StateDirOption = None) -> int:
    """Have every node write what each of its threads does; prints the files."""
    place = _place(context, state_dir)
    before = set(place.glob("dumps/dump-*.txt"))
    answer = ask(place, "dump")
    missing = {str(pid) for pid in answer["pids"]}
    deadline = time.monotonic() + DUMP_WAIT
    while missing and time.monotonic() < deadline:
        for path in sorted(set(place.glob("dumps/dump-*.txt")) - before):
            before.add(path)
            writer = path.name.split("-")[2]
            if writer in missing:
                missing.remove(writer)
                print(path)
        time.sleep(0.05)
    for pid in sorted(missing):
        print(f"node {pid} doesn't answer: it is stopped, or C code in it holds the interpreter lock", file=sys.stderr)
    return _dump_from_outside(sorted(missing)) if missing else OK


def _dump_from_outside(pids: Sequence[str]) -> int:
    """The stacks of processes that can't tell them, with their frames in C, by py-spy if there is one."""
    if (py_spy := shutil.which("py-spy")) is None:
        hint = "pip install py-spy, and `dump` shows where; --hang-timeout dumps and ends a node that stays so"
        print(hint, file=sys.stderr)
        return DEGRADED
    commands = [[py_spy, "dump", "--native", "--pid", pid] for pid in pids]
    spies = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603 - pids of our own
        for command in commands
    ]
    for spy in spies:
        with contextlib.suppress(subprocess.TimeoutExpired):
            print(spy.communicate(timeout=SPY_WAIT)[0].decode(errors="replace"))
        spy.kill()
    return OK if all(spy.wait() == 0 for spy in spies) else DEGRADED


def quiet(context: typer.Context, *, state_dir: StateDirOption = None) -> int:
    """Stop taking new jobs; running ones go on."""
    answer = ask(_place(context, state_dir), "quiet")
    who = "1 node takes" if answer["nodes"] == 1 else f"{answer['nodes']} nodes take"
    print(f"{who} no more jobs; `restart` doesn't change that, a new start does")
    return OK


def restart(
    context: typer.Context,
    slot: Annotated[int | None, typer.Argument(help="One slot, as status numbers them; default: all.")] = None,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Exit 0 when it is over, 1 when it has stopped.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --wait: exit 1 when it goes on after so long.")
    ] = AN_HOUR,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what a stopped one has left.")] = False,
    state_dir: StateDirOption = None,
) -> int:
    """Restart nodes, one after another: each ends when its successor is ready. The web view comes last."""
    if resume and slot is not None:
        raise CommandRefused(f"--resume goes on with the slots that are left: not with slot {slot} alone")
    place = _place(context, state_dir)
    answer = ask(place, "restart", resume=resume, **({} if slot is None else {"slot": slot}))
    web = ", then the web view" if answer.get("web") else ""
    print(f"restarting one after another: slots {', '.join(map(str, answer['slots']))}{web}", flush=True)
    if answer["preloaded"]:
        print("with the preloaded code: to change it, stop and start the supervisor")
    elif answer.get("moved"):
        print(f"with the code from before: {answer['moved']}")
    return follow(place, answer["roll"], timeout) if wait else OK


def scale(
    context: typer.Context,
    nodes: Annotated[str, typer.Argument(metavar="N|auto", help="How many nodes; auto: by the load, in the range.")],
    *,
    state_dir: StateDirOption = None,
) -> int:
    """Have more or fewer nodes, until the supervisor ends. Those that go drain first; jobs of the others run on."""
    answer = ask(_place(context, state_dir), "scale", nodes=int(nodes) if nodes.isdecimal() else nodes)
    before, goal = answer["before"], answer["goal"]
    print(f"from {before} to {goal} nodes" if before != goal else f"{goal} nodes, as before", end="")
    print(", by the load from here on" if answer["by_load"] else "")
    return OK


def stop(context: typer.Context, *, state_dir: StateDirOption = None) -> int:
    """Drain every node and wait until all have ended. Exits with the supervisor's code."""
    answer = ask(_place(context, state_dir), "stop", timeout=None)
    print(f"stopped: {answer['meaning']}")
    return int(answer["exit_code"])


def _watch(place: Path) -> int:
    from rich.live import Live  # noqa: PLC0415

    from lowkiq_supervisor.control.table import render  # noqa: PLC0415

    with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=sys.stdout.isatty()) as live:
        while True:
            live.update(render(ask(place, "status")), refresh=True)
            time.sleep(WATCH_INTERVAL)
    return OK


def _place(context: typer.Context, state_dir: str | None) -> Path:
    """The directory, whether it was given before the command or after it."""
    return state_directory(os.environ, state_dir or context.obj).absolute()


def _ending_by_code(command: Callable[Given, int]) -> Callable[Given, Any]:
    @functools.wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except (Unreachable, CommandRefused) as error:
            print(f"lowkiq-supervisor: {error}", file=sys.stderr)
            code = UNREACHABLE if isinstance(error, Unreachable) else DEGRADED
        raise typer.Exit(code)

    return run
