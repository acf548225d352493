"""
Checks before anything is started: what a person must change is said in a line, and ends the supervisor.

A child imports the application, so that nothing of it happens here, and signals are heard meanwhile. Only what waiting
can't mend is refused: a database that is away now may be back when the nodes ask for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping

import psutil

from lowkiq.environment import Address, ExitCode, code_of_import
from lowkiq.errors import import_refusal
from lowkiq.process.ending import LEAST, finish
from lowkiq.process.faults import dump_on_faults
from lowkiq.process.held_signals import release
from lowkiq.process.signals import SignalInbox, disarm
from lowkiq.process.title import set_title
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.child import Child, spawn
from lowkiq_supervisor.terminal import Terminal

#: Seconds for the import. A longer one is left to the nodes, so that no large application is imported twice in a row.
CHECK_TIME = 5.0
#: Seconds to write the stack of an import that takes too long.
DUMP_TIME = 0.5
#: What ends the supervisor while there is nothing yet to drain, and how.
CODES = {
    signal.SIGTERM: ExitCode.DRAINED,
    signal.SIGINT: ExitCode.DRAINED,
    signal.SIGXCPU: ExitCode.DRAINED,
    signal.SIGQUIT: ExitCode.ABANDONED,
}
#: Bytes of a refusal.
LONGEST_REFUSAL = 4000


class EndedEarly(Exception):
    """A signal has ended the supervisor before it has started anything."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code.name)
        self.code = code


def check_import(options: Options, environment: Mapping[str, str]) -> None:
    """Import the application as a node would. Raises BootError, or EndedEarly: see `check_app`."""

    def import_app() -> None:
        from lowkiq.importing import load_app  # noqa: PLC0415 - in the child
        from lowkiq.node.runtime import chosen_workers  # noqa: PLC0415

        chosen_workers(load_app(options.app), options.queues)

    check_app(import_app, options.app, environment, CHECK_TIME)


def check_app(import_app: Callable[[], object], app: str, environment: Mapping[str, str], limit: float) -> bool:
    """
    Import the application in a child; False: that takes longer than `limit` seconds.

    Raises:
        BootError: a person must change something.
        EndedEarly: a signal came.
    """
    reader, writer = os.pipe()

    def body(_: object) -> int:
        os.environ.update(environment)
        set_title(f"lowkiq: checking {app}")
        dump_on_faults()
        code, refusal = refusal_of(import_app, app)
        with contextlib.suppress(BlockingIOError):
            if refusal:
                os.write(writer, bytes([code]) + refusal.encode(errors="replace")[: LONGEST_REFUSAL - 1])
        return finish(code, LEAST)

    try:
        child = spawn(body, close_foreign=lambda: None)
        os.close(writer)
        try:
            in_time = _wait(child, limit)
        finally:
            child.close()
        os.set_blocking(reader, False)
        refusal = b""
        with contextlib.suppress(BlockingIOError):  # what the import has started may hold the other end
            refusal = os.read(reader, LONGEST_REFUSAL)
        if refusal:
            raise BootError(refusal[1:].decode(errors="replace"), refusal[0])
        return in_time
    finally:
        os.close(reader)


def refusal_of(import_app: Callable[[], object], app: str) -> tuple[ExitCode, str]:
    """Why a person must change something, in a line; "" if the application could be imported, or may be later."""
    try:
        import_app()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the module is the user's
        code = code_of_import(error)
        if code is not ExitCode.INTERNAL:  # that meets the nodes: they say so, and are started again
            return code, import_refusal(app, error)
    return ExitCode.DRAINED, ""


def check_port(address: Address) -> None:
    """Raises a BootError if the web view can't listen there."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        socket.create_server((address.host, address.port), family=family).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        holder = _holder(address.port) if error.errno == errno.EADDRINUSE else ""
        raise BootError(
            f"the web view can't listen at {address}: {reason}{holder and f', by {holder}'}. Choose another, --web"
        ) from error


def _wait(child: Child, limit: float) -> bool:
    """Wait for the child's end; False: it had to be killed. Signals are heard, and end it at once."""
    terminal = Terminal()
    deadline = time.monotonic() + limit
    with SignalInbox((*CODES, signal.SIGHUP, signal.SIGCHLD), ends_process=True) as inbox:
        disarm()
        release()
        while os.waitpid(child.pid, os.WNOHANG) == (0, 0):
            for number in inbox.wait(max(0.0, min(0.5, deadline - time.monotonic()))):
                hung_up = number == signal.SIGHUP and terminal.has_hung_up() and not terminal.is_outlived
                if number in CODES or hung_up:
                    _end(child)
                    raise EndedEarly(CODES.get(signal.Signals(number), ExitCode.DRAINED))
            if time.monotonic() > deadline:
                child.send(signal.SIGABRT)
                time.sleep(DUMP_TIME)
                _end(child)
                return False
    child.kill()  # what it has started
    return True


def _end(child: Child) -> None:
    child.kill()
    os.waitpid(child.pid, 0)


def _holder(port: int) -> str:
    """The process that listens on a port, as far as we may see it."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and getattr(connection.laddr, "port", None) == port
            if listens and connection.pid:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""
