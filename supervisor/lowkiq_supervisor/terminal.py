"""The terminal from which the supervisor was started, if there is one: its end is told by HUP, as other things are."""

from __future__ import annotations

import errno
import os
import signal
import time

#: Seconds after the terminal's end within which a HUP is the terminal's: shells pass it on before they end.
HUP_WITHIN = 10.0


class Terminal:
    """This process's controlling terminal, as long as it has one."""

    def __init__(self) -> None:
        self._is_there = _is_there()
        self._ended_at: float | None = None
        #: HUP was ignored from the start: nohup.
        self.is_outlived = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def look(self) -> None:
        """Notice its end; often enough, so that a HUP long after it is not taken for its own."""
        if self._is_there and not _is_there():
            self._is_there = False
            self._ended_at = time.monotonic()

    def has_hung_up(self) -> bool:
        """True for a HUP that says that the terminal has ended."""
        self.look()
        return self._ended_at is not None and time.monotonic() - self._ended_at < HUP_WITHIN


def _is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in {errno.EMFILE, errno.ENFILE}  # nothing is known; without a terminal it is ENXIO
    return True
