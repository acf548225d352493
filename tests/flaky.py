"""
Repeats tests while the machine is busy with other things, and names those that failed: `make flaky N=200`.

Usage: python -m tests.flaky TIMES [ARGUMENT ...], with arguments of pytest; without any, the tests of `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

#: Processes that compute, for each core, and what they do: until this one has ended.
BUSY, LOOP = 4, f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10_000))"

OPTIONS = ["-q", "-rfE", "-n", "6", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider"]


@contextmanager
def busy_machine() -> Iterator[None]:
    """As one is on which others work, too."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(BUSY * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(times: int, arguments: list[str]) -> int:
    chosen = arguments or ["-m", "not long and not rare"]
    command = [sys.executable, "-m", "pytest", *OPTIONS, *chosen]
    failed: Counter[str] = Counter()
    with busy_machine():
        for number in range(times):
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
            failed.update(names or ["pytest itself"] * (done.returncode != 0))
            print(f"{number + 1} of {times}: {len(names)} failed", flush=True)
            if done.returncode:
                print(done.stdout, flush=True)
    for name, count in failed.most_common():
        print(f"{count} of {times}: {name}")
    return min(len(failed), 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
