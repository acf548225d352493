"""
Prints how long each of Lowkiq's scripts keeps Redis, at most, with ordinary batches in a shard that holds very many ids
of each kind: due, later, held, waiting, blocked, throttled, tagged, dead, recurring and so on. Exits 1 when one takes
longer than is promised. A claim of a thousand jobs is not among them, nor what returns such claims to the queue: they
take a time for each of their jobs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from redis import Redis

from benchmarks.full_shard import FullShard
from benchmarks.script_walk import walk
from lowkiq import Lowkiq
from lowkiq.queue import scripts
from lowkiq.queue.call import Call
from tests.support import running_redis

#: Milliseconds that are promised.
PROMISED: Final = 5.0
QUEUE: Final = "q"


def main(arguments: Sequence[str] | None = None) -> int:
    """All scripts, one after the other."""
    parser = argparse.ArgumentParser("python -m benchmarks.scripts", description=__doc__)
    parser.add_argument("--ids", type=int, default=10_000, help="of each kind, in the shard (1000000 takes minutes)")
    parser.add_argument("--rounds", type=int, default=3, help="of which each script's best counts: machines are busy")
    given = parser.parse_args(arguments)
    longest = longest_of([measured(given.ids) for _ in range(given.rounds)])
    for name, milliseconds in sorted(longest.items(), key=lambda row: -row[1]):
        told = "" if milliseconds <= PROMISED else "  MISSED"
        print(f"{name:20} {milliseconds:8.2f} ms{told}", flush=True)
    missing = sorted(scripts.load(flags=False).keys() - longest.keys())
    if missing:
        print(f"not walked: {', '.join(missing)}")
    return int(bool(missing) or max(longest.values()) > PROMISED)


def longest_of(rounds: Sequence[Sequence[tuple[str, float]]]) -> dict[str, float]:
    """By script its longest call, each call as its best round has it: what else is done meanwhile is not in all."""
    longest: dict[str, float] = {}
    for calls in zip(*rounds, strict=False):
        name, milliseconds = calls[0][0], min(took for script, took in calls if script == calls[0][0])
        longest[name] = max(longest.get(name, 0.0), milliseconds)
    return longest


def measured(ids: int) -> list[tuple[str, float]]:
    """Milliseconds of each call of the walk."""
    with running_redis() as server:
        app = Lowkiq(redis_url=server.url)
        full = FullShard(app, QUEUE, ids)
        calls: list[tuple[str, float]] = []

        def run(call: Call[Any]) -> Any:
            began = _used(full.redis)
            result = app.caller.run(call)
            calls.append((call.script, _used(full.redis) - began))
            return result

        walk(full, run)
        return calls


def _used(redis: Redis) -> float:
    """Milliseconds of a core that Redis's main thread has used: others may keep the machine busy meanwhile."""
    cpu: dict[str, float] = redis.info("cpu")
    return (cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]) * 1_000


if __name__ == "__main__":
    sys.exit(main())
