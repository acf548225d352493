"""
Many supervisors one after another, each gone within milliseconds: a process that forks them, for tests of chance.

Usage: rounds.py ROUNDS SEED. Sends TERM after a random part of the boot, and prints one JSON line about all rounds.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from lowkiq import log
from lowkiq.process.held_signals import hold_back
from lowkiq_supervisor.arbiter import Arbiter
from lowkiq_supervisor.options import Options
from tests.supervisor.supervised import slow_boot

#: Seconds after which a supervisor counts as stuck.
PATIENCE = 60.0


def one_round(directory: Path, luck: random.Random) -> str:
    """The end of one supervisor: its exit code, or that something of it was left."""
    alive, descendants = os.pipe()
    os.set_inheritable(descendants, True)
    hold_back()  # as main() does before anything else
    if (pid := os.fork()) == 0:
        os.close(alive)
        options = Options(app="unused", nodes=2, number_of_nodes=2, state_dir=directory, drain_timeout=5)
        os._exit(Arbiter(options, run_child=slow_boot).run())
    os.close(descendants)
    time.sleep(luck.uniform(0, 0.1))  # not to wait for something: this is the random moment
    os.kill(pid, signal.SIGTERM)
    gone, _, _ = select.select([alive], [], [], PATIENCE)  # everything that it has forked holds the other end
    if not gone:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(alive)
    return f"exit code {os.waitstatus_to_exitcode(status)}" if gone else "stuck"


def main(rounds: int, seed: int) -> None:
    log.configure()
    luck = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        print(json.dumps(Counter(one_round(Path(directory) / "state", luck) for _ in range(rounds))))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
