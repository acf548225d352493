"""
Forking a child, and what a child does from its first instruction to its last.

Responsible for the order of the steps, which is what makes signals and deaths safe: signals are blocked until the
child has its own handlers, it dies with the supervisor, and it never returns into the supervisor's code.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq.process.ending import begin_anew
from lowkiq.process.parent import die_with, kill_group, killed_by, offer_to_kernel
from lowkiq.process.signals import disarm
from lowkiq.shared_page import Bulletin, SharedPage
from lowkiq_supervisor.processes.beat_pipe import HAS_END_HOOK, HAS_SPLITTER, Beat, BeatReader, BeatWriter
from lowkiq_supervisor.restart_policy import End

log = get_logger("supervisor")

#: States of a node, as its beats name them, that it is in no more once it has heard a signal.
UNHEARD: Final = {
    signal.SIGTERM: {"ready", "quiet", "retiring"},
    signal.SIGHUP: {"ready", "quiet"},
}
#: Seconds after which a node that goes on beating such a state has not heard it: a library may have had that signal
#: just then. No beat is so long on its way: to tell a node that has heard it would end the hook that it may be in.
TELL_AGAIN: Final = 1.0


@dataclass(slots=True)
class Child:
    """A running process of the supervisor, and the supervisor's ends of what connects them."""

    pid: int
    #: Readable once the process has ended; None where the platform has no such thing.
    pidfd: int | None
    beats: BeatReader
    #: The name under which the process is known in Redis, if it is a node.
    name: str = ""
    #: What the node tells of its threads, and where it reads the supervisor's bulletin.
    page: SharedPage | None = None
    #: The application wants to be told of its end.
    has_end_hook: bool = False
    #: It has a splitter of its own.
    has_splitter: bool = False
    #: The bulletin that it was given last.
    told: Bulletin | None = None
    #: When it became ready.
    ready_at: float | None = None
    #: When it was started, as the kernel counts it.
    birth: str = ""
    started_at: float = field(default_factory=time.monotonic)
    #: When it last gave a sign of life, and its last beat.
    last_sign: float = field(default_factory=time.monotonic)
    last_beat: Beat = field(default_factory=lambda: Beat(""))
    beats_heard: int = 0
    #: Its silence was too long at this time.
    silent_at: float | None = None
    #: When it was told to retire.
    told_at: float | None = None
    #: When it last asked for something.
    asked_at: float = float("-inf")
    #: It has ended, and was reaped.
    is_reaped: bool = False
    #: The last of these signals that it was sent, and when.
    sent: tuple[signal.Signals, float] | None = None
    #: Why the supervisor ends it, if that isn't said by its exit code.
    ended_for: str = ""
    #: Its own share of every recycling limit, so that processes that started together don't end together.
    limit_share: float = field(default_factory=lambda: random.uniform(0.9, 1.1))  # noqa: S311 - not a secret

    def note(self, beat: Beat) -> None:
        """Keep what a beat says."""
        self.last_sign, self.silent_at, self.last_beat = time.monotonic(), None, beat
        self.beats_heard += 1
        self.has_end_hook |= beat.state == HAS_END_HOOK
        self.has_splitter |= beat.state == HAS_SPLITTER
        if self.sent and self.page is not None and not self.is_reaped:
            number, at = self.sent
            if beat.state in UNHEARD[number] and self.last_sign - at > TELL_AGAIN:
                self.send(number)

    @property
    def booted(self) -> bool:
        """True once it has been ready: its own signal handlers are in place."""
        return self.ready_at is not None

    def end(self, code: int) -> End:
        """Its end, now that it was reaped with this code, for the restart policy."""
        return End(
            code,
            ready_for=None if self.ready_at is None else time.monotonic() - self.ready_at,
            ran_jobs=self.page is not None and self.page.has_run_jobs,
            is_ours=bool(self.ended_for),
        )

    def send(self, signum: signal.Signals) -> None:
        """Signal the process; one that has just ended is left alone."""
        if signum in UNHEARD:
            self.sent = signum, time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """End the process now, with everything it has started."""
        self._kill_groups()
        self.send(signal.SIGKILL)

    def end_now(self) -> None:
        """Kill a process that may have been reaped already, as one that nobody knows, and reap it if it wasn't."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        else:
            self.send(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def reap(self) -> int | None:
        """The exit code if the process has ended (negative: a signal), else None."""
        if self.pidfd is not None or hasattr(os, "waitid"):  # see Children.reap_ended
            # The process is a zombie, so its number can't belong to anybody else yet. What its jobs have started goes
            # with it: a job that is repeated elsewhere must not meet its own leftovers.
            self._kill_groups()
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return ExitCode.INTERNAL  # somebody else has taken the status: it is gone, and nothing more is known
        return os.waitstatus_to_exitcode(status) if pid else None

    def _kill_groups(self) -> None:
        for group in (self.pid, *(self.page.groups() if self.page is not None else ())):
            kill_group(group)

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
        self.beats.close()
        if self.page is not None:
            self.page.close()


def spawn(
    body: Callable[[BeatWriter], int],
    *,
    close_foreign: Callable[[], None],
    death_signal: signal.Signals = signal.SIGKILL,
    expendable: int = 0,
) -> Child:
    """
    Start a child that runs `body`, with its end of the beat pipe, and exits with what that returns.

    Args:
        close_foreign: called in the child; closes what belongs to the supervisor and to other children.
        death_signal: what the child gets when the supervisor dies.
        expendable: by how much the kernel, out of memory, should rather take it than the supervisor: up to 1000.
    """
    reader, writer = os.pipe()
    supervisor = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            offer_to_kernel(expendable)
            _live(body, BeatWriter(writer), supervisor, close_foreign, death_signal)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # the child does it too: whoever comes first, the group exists from now on
    pidfd = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox that forbids it: SIGCHLD does the work then
            pidfd = os.pidfd_open(pid)
    return Child(pid=pid, pidfd=pidfd, beats=BeatReader(reader))


def describe_exit(code: int) -> str:
    """A child's end in words; negative codes are signals, as `os.waitstatus_to_exitcode` gives them."""
    return f"exit code {code}" if code >= 0 else killed_by(-code)


def _live(
    body: Callable[[BeatWriter], int],
    beat: BeatWriter,
    supervisor: int,
    close_foreign: Callable[[], None],
    death_signal: signal.Signals,
) -> None:
    """The whole life of a child. Never returns: the stack below belongs to the supervisor."""
    code: int = ExitCode.INTERNAL
    try:
        _default_signals()
        os.setpgid(0, 0)  # a terminal's ^C is the supervisor's to interpret
        die_with(supervisor, death_signal)
        close_foreign()
        begin_anew()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code = body(beat)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else ExitCode.INTERNAL
    except BaseException:
        log.exception("process_failed")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _default_signals() -> None:
    """Forget the supervisor's handlers: TERM, INT and QUIT end a child that hasn't its own yet, nothing else does."""
    signal.set_wakeup_fd(-1)
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        if callable(signal.getsignal(signum)):
            signal.signal(signum, signal.SIG_DFL)
    disarm()
    # Their default would stop the process for good; the arbiter sends them only to nodes that have become ready.
    for signum in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(signum, signal.SIG_IGN)
