"""
The fork server's process: single-threaded and forked before the node has threads, so that it can fork helpers safely.

It runs no code of the user's. Helpers get their signals, and the kernel's order to die with it, from their first steps.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from lowkiq.handlers import forks
from lowkiq.log import get_logger
from lowkiq.node.helpers.frames import end_of
from lowkiq.node.helpers.tree import kill_tree, stop_group
from lowkiq.process.ending import begin_anew
from lowkiq.process.parent import die_with, offer_to_kernel
from lowkiq.process.signals import SignalInbox, held, outlast
from lowkiq.process.title import set_title
from lowkiq.shared_page import MOST_GROUPS, SharedPage

logger = get_logger()

#: A helper's pid, or how it has ended, on its status socket. A pid below 0: the error number of a fork that failed.
STATUS: Final = struct.Struct("<q")
#: The kernel, out of memory, rather takes a helper than its node, whose other jobs would go with it.
EXPENDABLE: Final = 100

#: What the node asks for: a helper that shares what this process has imported, or one that begins anew.
FORKED: Final = b"\0"
SPAWNED: Final = b"\1"
#: Runs a helper at the end of a socket; returns its exit code.
RunHelper = Callable[[socket.socket], int]


class Server:
    """
    The loop. The node asks for a helper with one byte, its kind, and two descriptors: the helper's socket, and a status
    socket, on which it learns the helper's pid and its end. A dead helper is reaped once the node has closed its end of
    that: until then the pid is nobody else's. A helper that still lives then is killed.
    """

    def __init__(self, node: int, control: socket.socket, run: Mapping[bytes, RunHelper], page: SharedPage) -> None:
        self._node = node
        self._control = control
        self._run = run
        self._page = page
        self._selector = selectors.PollSelector()
        #: Status socket → pid, and place on the page.
        self._helpers: dict[socket.socket, tuple[int, int]] = {}
        self._told: set[int] = set()
        self._is_over = False

    def serve(self) -> None:
        """
        Serves until the node closes the control socket, or dies. Nobody else ends it: whoever tells all processes of a
        service to end, as systemd does, gives jobs in helpers the drain of the others.
        """
        with SignalInbox((signal.SIGCHLD, signal.SIGTERM)) as self._inbox:
            self._selector.register(self._inbox, selectors.EVENT_READ, self._act_on_signals)
            self._selector.register(self._control, selectors.EVENT_READ, self._accept)
            while not self._is_over:
                for key, _ in self._selector.select():
                    key.data()
            helpers = [pid for pid, _ in self._helpers.values()]
            for pid in helpers:  # all at once: to find what each has started takes some milliseconds
                stop_group(pid)
            for pid in helpers:
                kill_tree(pid)

    def _act_on_signals(self) -> None:
        # The kernel's word that the node is dead, or anybody's.
        self._is_over |= signal.SIGTERM in self._inbox.take() and os.getppid() != self._node
        for status, (pid, _) in list(self._helpers.items()):
            if pid not in self._told and (code := _ended(pid)) is not None:
                self._told.add(pid)
                with contextlib.suppress(OSError):  # the node has closed it already
                    status.send(STATUS.pack(code))
                self._reap(status)

    def _accept(self) -> None:
        request, descriptors, _, _ = socket.recv_fds(self._control, 1, 2)
        if not request:
            self._is_over = True
            return
        end, status = map(end_of, descriptors)
        with end:
            try:
                self._fork(self._run[request], end, status)
            except OSError as error:
                with contextlib.suppress(OSError):
                    status.send(STATUS.pack(-(error.errno or 1)))
                status.close()

    def _fork(self, run: RunHelper, end: socket.socket, status: socket.socket) -> None:
        taken = {place for _, place in self._helpers.values()}
        place = next((place for place in range(1, MOST_GROUPS) if place not in taken), None)
        if place is None:
            raise BlockingIOError(errno.EAGAIN, "too many helpers")
        server = os.getpid()
        with held():
            pid = os.fork()
            if pid == 0:
                status.close()
                self._live(run, end, server, place)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # the helper does it too: whoever comes first, the group exists from now on
        self._helpers[status] = pid, place
        self._selector.register(status, selectors.EVENT_READ, lambda: self._let_go(status))
        with contextlib.suppress(OSError):
            status.send(STATUS.pack(pid))

    def _let_go(self, status: socket.socket) -> None:
        """The node wants the helper no more."""
        pid, _ = self._helpers[status]
        self._selector.unregister(status)
        status.close()
        if pid not in self._told:
            kill_tree(pid)
        self._reap(status)

    def _reap(self, status: socket.socket) -> None:
        """Reaps a helper that has ended, and that the node wants no more."""
        pid, place = self._helpers[status]
        if pid in self._told and status.fileno() < 0:
            self._page.note_group(place, 0)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self._told.discard(pid)
            del self._helpers[status]

    def _live(self, run: RunHelper, end: socket.socket, server: int, place: int) -> NoReturn:
        """The whole life of a helper. Never returns: the stack below belongs to the server."""
        code = 1
        try:
            os.setpgid(0, 0)
            die_with(server)
            self._page.note_group(place, os.getpid())
            self._close_all()
            offer_to_kernel(EXPENDABLE)
            code = run(end)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:
            logger.exception("helper_failed")
        finally:
            forks.end(code)

    def _close_all(self) -> None:
        """In a helper: closes what belongs to the server and to other helpers."""
        self._inbox.close()
        self._control.close()
        self._page.close()
        for status in self._helpers:
            status.close()


def live(parent: int, control: socket.socket, run: Mapping[bytes, RunHelper], page: SharedPage) -> NoReturn:
    """The whole life of the fork server, which has just been forked. Never returns: the stack below is the node's."""
    code = 1
    try:
        os.setpgid(0, 0)  # neither a terminal nor the end of the node's group ends it before its helpers
        page.note_group(0, os.getpid())
        outlast()
        die_with(parent, signal.SIGTERM)
        begin_anew()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _read_nothing()
        set_title(f"lowkiq: fork server of node {parent}")
        gc.collect()
        gc.freeze()  # helpers' collections leave the shared pages alone
        Server(parent, control, run, page).serve()
        code = 0
    except BaseException:
        logger.exception("fork_server_failed")
    finally:
        forks.end(code)


def _read_nothing() -> None:
    """Jobs in the background of a terminal would be stopped if they read from it."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _ended(pid: int) -> int | None:
    """How a child has ended, which is not reaped by that; negative: by a signal. None: it has not."""
    if not hasattr(os, "waitid"):
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return -found.si_status if found.si_code in {os.CLD_KILLED, os.CLD_DUMPED} else found.si_status
