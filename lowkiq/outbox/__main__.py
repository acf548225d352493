"""`python -m lowkiq.outbox shop.jobs:relay`: a relay in a process of its own, until INT or TERM."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lowkiq import log
from lowkiq.environment import ExitCode


@runtime_checkable
class Runnable(Protocol):
    """A relay, or what behaves like one."""

    def run(self) -> Any: ...
    def run_once(self) -> int | None: ...
    def stop(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lowkiq.outbox", description="Pushes what is in an outbox.")
    parser.add_argument("relay", metavar="MODULE:NAME", help="a relay, such as shop.jobs:relay")
    parser.add_argument("--once", action="store_true", help="end when nothing is left to send")
    options = parser.parse_args(arguments)
    log.configure()
    found = _load(options.relay)
    if not isinstance(found, Runnable):
        parser.error(f"{options.relay} is a {type(found).__name__}, it must be a relay: relay = outbox.relay(engine)")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: found.stop())
    if options.once:
        while found.run_once():
            pass
    else:
        found.run()
    return ExitCode.DRAINED


def _load(spec: str) -> Any:
    module, _, name = spec.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return getattr(importlib.import_module(module), name or "relay", None)


if __name__ == "__main__":
    sys.exit(main())
