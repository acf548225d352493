"""
The entry point of `lowkiq-supervisor`: what must happen before anything else is imported.

Signals are held back from here on, since importing takes a while; a probe is answered without importing the rest.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command, and exits with its code."""
    if sys.argv[1:2] == ["ping"]:
        from lowkiq_supervisor.control.ping import asked_plainly, ping  # noqa: PLC0415 - see above

        if (asked := asked_plainly(sys.argv[1:])) is not None:
            state_dir, ready = asked
            sys.exit(ping(state_dir, ready=ready))
    else:
        from lowkiq.process.held_signals import hold_back  # noqa: PLC0415 - see above

        hold_back()
    from lowkiq_supervisor.cli import run  # noqa: PLC0415 - see above

    run()
