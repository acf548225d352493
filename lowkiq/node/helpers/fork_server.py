"""ForkServer: the node's end of the process that makes helpers, and the helpers of the node's threads."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from lowkiq import clock
from lowkiq.errors import ForkServerDied
from lowkiq.hooks import Fatal
from lowkiq.log import get_logger
from lowkiq.node.helpers import helper_process, server_process, spawned
from lowkiq.node.helpers.frames import pair
from lowkiq.node.helpers.helper import Helper, HelperEnded, describe, is_readable
from lowkiq.node.helpers.server_process import FORKED, SPAWNED
from lowkiq.process.signals import held
from lowkiq.settings import Settings
from lowkiq.shared_page import MOST_GROUPS, SharedPage
from lowkiq.worker import Worker

logger = get_logger()

#: Seconds for the fork server to end its helpers and itself.
END_WITHIN = 2.0


class ForkServer:
    """
    Forked once, before the node has threads, connections, or anything that on_server_init makes; after that it can't be
    replaced. It calls `fatal` with ForkServerDied when it finds it dead, and makes no helper any more.

    Any thread may call `mine` and `drop`.

    Args:
        close_foreign: called in the fork server; closes what belongs to the node.
        source: where helpers that begin anew import the application from.
    """

    def __init__(
        self,
        workers: Mapping[str, type[Worker]],
        settings: Settings,
        page: SharedPage,
        fatal: Fatal,
        close_foreign: Callable[[], None] = lambda: None,
        source: str | None = None,
    ) -> None:
        self._fatal = fatal
        self._page = page
        self._drain_timeout = settings.drain_timeout
        self._of_thread = threading.local()
        self._helpers: set[Helper] = set()
        #: Those that are to end by themselves, and by when.
        self._retired: list[tuple[Helper, float]] = []
        self._lock = threading.Lock()
        self._is_closed = self._has_died = False
        self._control, theirs = pair()
        node = os.getpid()
        with held():
            self.pid = os.fork()
            if self.pid == 0:
                self._control.close()
                close_foreign()
                run = partial(helper_process.run, workers=workers, settings=settings, node=node)
                anew = partial(spawned.begin_anew, app=source or "", node=node)
                server_process.live(node, theirs, {FORKED: run, SPAWNED: anew}, page)
        theirs.close()
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def mine(self, kind: bytes = FORKED) -> Helper:
        """
        The helper of the calling thread, of that kind. One is made for it if it has none, or that has died since its
        last batch.

        Raises:
            HelperEnded: none can be made.
        """
        helper = self._mine().get(kind)
        if helper is not None:
            if (code := helper.has_ended()) is None:
                return helper
            logger.warning(
                "idle_helper_died", pid=helper.pid, reason=describe(code), advice="the next job gets another"
            )
            self.drop(helper)
        helper = self._mine()[kind] = self._make(kind)
        return helper

    def _mine(self) -> dict[bytes, Helper]:
        """The helpers of the calling thread, by their kinds."""
        helpers: dict[bytes, Helper] = self._of_thread.__dict__.setdefault("helpers", {})
        return helpers

    def _forget(self, helper: Helper) -> None:
        self._mine().pop(helper.kind, None)

    def drop(self, helper: Helper) -> None:
        """Ends that helper of the calling thread: its next batch gets another."""
        self._forget(helper)
        self._close(helper)

    def _close(self, helper: Helper) -> None:
        with self._lock:
            self._helpers.discard(helper)
        helper.close()

    def retire(self, helper: Helper) -> None:
        """Has the calling thread's helper end by itself, which has told of its last batch: the next gets another."""
        self._forget(helper)
        helper.let_end()
        self._retired.append((helper, clock.monotonic() + self._drain_timeout))

    def let_end(self) -> None:
        """Has helpers that run nothing end by themselves."""
        for helper in list(self._helpers):
            helper.let_end()

    def wait_for_end(self, seconds: float) -> None:
        """Waits until they have, at most so many seconds."""
        until = clock.monotonic() + seconds
        for helper in list(self._helpers):
            helper.wait_for_end(until - clock.monotonic())

    def check(self) -> None:
        """Finds out what has ended, the fork server too, while nobody asked for it."""
        now = clock.monotonic()
        for helper, until in list(self._retired):
            if helper.wait_for_end(0) or now >= until:
                self._retired.remove((helper, until))
                helper.kill()  # with what its jobs have started
                self._close(helper)
        if not self._is_closed and is_readable(self._control):
            self.died()

    def died(self) -> HelperEnded:
        """Notes that the fork server is dead; the kernel ends its helpers. Returns the error for a batch of one."""
        with self._lock:
            is_news, self._is_closed = not self._is_closed, True
            self._has_died |= is_news
            helpers = list(self._helpers)
        if is_news:
            for helper in helpers:  # where the kernel doesn't
                helper.kill()
            for place in range(MOST_GROUPS):
                self._page.note_group(place, 0)
            self._fatal(ForkServerDied("the fork server has died: jobs in processes of their own need a new node"))
        ended = HelperEnded(None)
        ended.is_unasked = self._has_died
        return ended

    def close(self) -> None:
        """Ends the fork server with its helpers."""
        with self._lock:
            self._is_closed = True
        self._control.close()
        until = clock.monotonic() + END_WITHIN
        with contextlib.suppress(ChildProcessError):  # a job has waited for any child
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if clock.monotonic() >= until:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    break
                time.sleep(0.001)
        for helper in list(self._helpers):
            if not helper.is_running:  # else its thread learns by it that it is to end
                helper.close()

    def _make(self, kind: bytes) -> Helper:
        ours, theirs = pair()
        status, told = pair()
        with theirs, told:
            try:
                with self._lock:
                    if self._is_closed:
                        raise BrokenPipeError
                    socket.send_fds(self._control, [kind], [theirs.fileno(), told.fileno()])
            except OSError:
                ours.close()
                status.close()
                raise self.died() from None
        helper = Helper(ours, status, self.died, kind)
        with self._lock:
            self._helpers.add(helper)
        return helper
