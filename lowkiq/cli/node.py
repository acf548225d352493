"""One node in the foreground; and the `doctor` command, which examines what a node goes by."""

from __future__ import annotations

import os
import signal
from typing import Final, NoReturn

import typer

from lowkiq import SettingsError, environment
from lowkiq.cli import tables
from lowkiq.cli.given import AsJson, Require
from lowkiq.cli.opening import clear_errors, configure_log, fail, leave, loaded
from lowkiq.doctor import command as examiner
from lowkiq.environment import ExitCode, code_of_import
from lowkiq.errors import AppNotFound, LowkiqError
from lowkiq.node.node import Node
from lowkiq.process.held_signals import release
from lowkiq.process.signals import disarm, leave_on

DOCTOR_EPILOG: Final = examiner.EPILOG


def run(
    require: str | None,
    *,
    node_number: str | None,
    number_of_nodes: str | None,
    queues: str | None,
    threads: str | None,
    burst: bool,
) -> NoReturn:
    """Runs it until it has drained, and ends the process."""
    with clear_errors():
        if require is None:
            raise SettingsError("which application? Say -r MODULE or -r MODULE:ATTR")
        configure_log()
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
    leave(node.run(), node.time_left)


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
    leave(0 if examiner.is_well(findings) else ExitCode.FAILED)
