"""Stand-ins for the web view of a supervisor in tests (see supervised.py)."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from lowkiq_supervisor.options import Options

Tell = Callable[..., None]


def serving(options: Options, beat: Tell) -> int:
    """Takes connections until TERM."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    Path("env-web").write_text(json.dumps(dict(os.environ)))
    with socket.create_server((options.web.host, options.web.port)):
        while not told:
            beat("ready")
            time.sleep(0.02)
    beat("draining")
    return 0


def deaf(options: Options, beat: Tell) -> int:
    """Doesn't hear TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        beat("ready")
        time.sleep(0.02)


def failing(options: Options, beat: Tell) -> int:
    """Fails until a file says that it is mended."""
    return serving(options, beat) if Path("mended").exists() else 3


def silent_at_boot(options: Options, beat: Tell) -> int:
    """Never becomes ready."""
    faulthandler.enable()
    time.sleep(300)
    return 0
