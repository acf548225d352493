"""History: what innocent jobs have noted, and the supervisor's log; what of it is not as it should be."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

#: Seconds between a job's end and Redis's knowing of it, while another job holds the interpreter's lock.
SETTLING: Final = 5.0
#: Seconds within which the node of a helper that was cut off has ended too.
NODE_ENDS: Final = 60.0

#: Events of processes that are killed.
CUT_OFF: Final = {"helper_ended", "cut_off_for_successor"}

#: A queue, an id, and the number of a payload, which rises with each push.
Payload = tuple[str, str, int]


class Run(NamedTuple):
    """A run of one innocent payload."""

    pid: int
    begin: float
    #: None: it was cut off.
    end: float | None = None
    #: How it ended, if it did.
    how: str = ""


class History:
    def __init__(self, rows: Sequence[dict[str, Any]], log: Sequence[dict[str, Any]]) -> None:
        offset = time.monotonic() - time.time()
        #: Process → when the supervisor saw that it had ended other than it was told to.
        self._deaths: dict[int, float] = {
            line["pid"]: datetime.fromisoformat(line["timestamp"]).timestamp() + offset
            for line in log
            if line["event"].startswith("died_") or line["event"] in {"recycled", "cut_off_for_successor"}
        }
        self._parents: dict[int, list[int]] = {row["pid"]: row["parents"] for row in rows if row["k"] == "boot"}
        deeds = [(row["q"], row["id"], row["pid"]) for row in rows if row["k"] == "deed"]
        #: What jobs were begun to do, as `queue id`.
        self.deeds = {f"{queue} {id}" for queue, id, _ in deeds}
        #: Processes that were given no time to clear up.
        self.cut_off = {line["pid"] for line in log if line["event"] in CUT_OFF or line["event"].startswith("died_")}
        # Of what its fork holds open, nobody but that knows the end.
        self.cut_off |= {pid for _, id, pid in deeds if id.endswith("fork, stay")}
        self.cut_off |= {pid for pid, parents in self._parents.items() if self.cut_off & set(parents)}
        #: Deeds, as `queue deed`, of processes that had the time.
        self.cleared = {f"{queue} {id.partition(':')[2]}" for queue, id, pid in deeds if pid not in self.cut_off}
        #: Payload → its runs, by their begin.
        self.runs: dict[Payload, list[Run]] = defaultdict(list)
        self._again: Counter[str] = Counter()
        self.complaints = [*self._read(rows), *self._doubled(), *self._disordered()]

    @property
    def says(self) -> str:
        return f"{len(self._deaths)} deaths, {sum(map(len, self.runs.values()))} runs, again: {dict(self._again)}"

    def _read(self, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
        cancelled: set[tuple[str, str]] = set()
        for row in rows:
            match row["k"]:
                case "intruder":
                    yield f"a job spoke for another one: {row}"
                case "cancelled":
                    cancelled |= {(row["q"], id) for id in row["n"]}
                    self._note(row)
                case "begin" | "end":
                    self._note(row)
            if row["k"] == "begin":
                yield from (f"{row['q']} {row['n']} met {what}" for what in row["meets"])
                if row["try_"] >= 0 and not cancelled & {(row["q"], id) for id in row["n"]}:
                    yield f"failed: {row['q']} {row['n']}"
                if row["pid"] not in self._parents:
                    yield f"ran in a process that is no node's: {row}"
                yield from (f"out of order: {row}" for numbers in row["n"].values() if numbers != sorted(numbers))

    def _note(self, row: dict[str, Any]) -> None:
        for id, numbers in row["n"].items():
            for number in numbers:
                runs = self.runs[row["q"], id, number]
                if row["k"] == "begin":
                    runs.append(Run(row["pid"], row["t"]))
                    continue
                (place,) = (i for i, run in enumerate(runs) if run.pid == row["pid"] and run.end is None)
                runs[place] = runs[place]._replace(end=row["t"], how=row["k"])

    def _doubled(self) -> Iterator[str]:
        for payload, runs in self.runs.items():
            for first, second in pairwise(runs):
                why = self._why_again(first, second)
                self._again[why] += 1
                if why == "unexplained":
                    yield f"performed again: {payload}: {first}, {second}"

    def _why_again(self, first: Run, second: Run) -> str:
        if first.how == "cancelled":
            return "cancelled"
        own, nodes = self._deaths.get(first.pid), self._parents.get(first.pid, [])
        died = [at for pid in nodes if (at := self._deaths.get(pid)) and at - first.begin < NODE_ENDS]
        if own is not None and own < second.begin:
            died.append(own)
        if first.end is None:
            return "cut off" if died else "unexplained"
        return "not settled" if any(at - first.end < SETTLING for at in died) else "unexplained"

    def _disordered(self) -> Iterator[str]:
        """Payloads that began while a lower one of their id ran, or had not been done."""
        batches: dict[tuple[str, str], dict[tuple[float, int], set[int]]] = defaultdict(lambda: defaultdict(set))
        done: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for (queue, id, number), runs in self.runs.items():
            ends = [run.end for run in runs if run.end is not None and run.how == "end"]
            done[queue, id][number] = min(ends, default=math.inf)
            for run in runs:
                batches[queue, id][run.begin, run.pid].add(number)
        for key, of_id in batches.items():
            for (begin, pid), numbers in of_id.items():
                late = [n for n, at in done[key].items() if n < max(numbers) and at > begin and n not in numbers]
                if late:
                    yield f"out of order: {key}: {sorted(numbers)} began at {begin} in {pid}, before {late} were done"
