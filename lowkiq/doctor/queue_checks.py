"""Checks of queues: does the code agree with Redis, and does somebody run what is due?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lowkiq.admin import probes
from lowkiq.cli.tables import printable
from lowkiq.doctor.finding import Verdict, note, ok, problem, warning
from lowkiq.doctor.subject import Patient
from lowkiq.errors import NewerLayout, ShardsCountMismatch
from lowkiq.queue import keys
from lowkiq.queue.push import check_layout
from lowkiq.queue.shard import Shard

#: Seconds by which a job may be late before people should know.
LATE: Final = 60.0
#: Names that are listed one by one.
MANY: Final = 10


def shards_count(patient: Patient) -> Iterator[Verdict]:
    """Code against Redis: what a node refuses at boot."""
    if not patient.has_app:
        yield note("no application was named: say -r MODULE to have its queues checked")
        return
    if not patient.app.workers:
        yield warning("the application has no workers", "register one with @app.worker")
    agreed, unknown = [], []
    for queue, worker in patient.app.workers.items():
        known = patient.layouts.get(queue)
        if known is None:
            unknown.append(queue)
            continue
        try:
            check_layout(queue, known, worker.shards_count)
            agreed.append(queue)
        except ShardsCountMismatch as error:
            says, _, do = str(error).partition(": ")
            yield problem(f"{says}: nodes and producers refuse it", do)
        except NewerLayout:
            pass  # layouts() tells
    if agreed:
        yield ok(f"shards_count agrees with Redis: {_listed(agreed)}")
    if unknown:
        yield note(f"not in Redis yet, the first push or node makes them: {_listed(unknown)}")


def layouts(patient: Patient) -> Iterator[Verdict]:
    """Whether this version may write to every queue, and every shard was written as its queue says."""
    newer = [queue for queue, told in patient.layouts.items() if told.version > keys.LAYOUT_VERSION]
    for queue in newer:
        yield _newer(queue, patient.layouts[queue].version)
    shards = [shard for queue in patient.layouts.keys() - set(newer) for shard in _shards(patient, queue)]
    found = zip(shards, probes.read_shard_layouts(patient.caller, shards), strict=True)
    odd = [(shard, told) for shard, told in found if told and told != patient.layouts[shard.queue]]
    for shard, told in odd[:MANY]:
        if told.version > keys.LAYOUT_VERSION:
            yield _newer(f"{shard.queue} (shard {shard.index})", told.version)
        else:
            yield problem(
                f"shard {shard.index} of queue {shard.queue} was written with shards_count {told.shards_count}, "
                f"the queue has {patient.layouts[shard.queue].shards_count}: nobody can use it",
                f"set shards_count = {told.shards_count}, or choose another queue_name",
            )
    if not newer and not odd:
        yield ok(f"layout {keys.LAYOUT_VERSION}, as this version writes it")


def _newer(queue: str, version: int) -> Verdict:
    says, _, do = str(keys.newer_layout(queue, version)).partition(": ")
    return problem(says, f"{do}: a newer Lowkiq has taken the queue over")


def unserved(patient: Patient) -> Iterator[Verdict]:
    """Queues that nobody works off: renamed, or of code that is gone."""
    if not patient.has_app:
        return
    held = {shard.queue for shard in patient.shards if shard.lease_rest > 0}
    for queue, row in patient.queues.items():
        jobs = row.length + row.busy
        if jobs and queue not in patient.app.workers and queue not in held:
            yield warning(
                f"queue {queue} has {jobs:,} jobs, no worker in this application and no node",
                f"run the application that has it; or push them anew elsewhere: lowkiq.Lowkiq().queries({queue!r}, "
                f"{patient.layouts[queue].shards_count})",
            )


def unowned(patient: Patient) -> Iterator[Verdict]:
    """Jobs that are due, or were in hand, where nobody is."""
    shards = patient.nodes.unowned
    if not shards:
        yield ok("every shard with jobs due has a node")
        return
    lag = max(-(shard.due_in or 0.0) for shard in shards)
    in_hand = sum(shard.busy for shard in shards)
    names = _listed([f"{shard.queue}:{shard.shard}" for shard in shards])
    says = f"{len(shards)} shards with jobs have no node, the oldest job is {max(lag, 0):,.0f} s late: {names}"
    if in_hand:
        says += f"; {in_hand:,} jobs are in the hands of nodes that are gone, and run again once a node comes"
    if patient.nodes.nodes:
        yield problem(
            says, "see `lowkiq nodes` for numbers that are missing, and whether the nodes have these queues' workers"
        )
    else:
        yield warning(says, "start nodes: lowkiq-supervisor --nodes N -r MODULE")


def late(patient: Patient) -> Iterator[Verdict]:
    """Jobs that wait although their shard has a node."""
    lags: dict[str, float] = {}
    for shard in patient.shards:
        if shard.lease_rest > 0 and shard.due_in is not None:
            lags[shard.queue] = max(lags.get(shard.queue, 0.0), -shard.due_in)
    behind = {queue: lag for queue, lag in lags.items() if lag > LATE}
    for queue, lag in behind.items():
        row = patient.queues[queue]
        yield warning(
            f"queue {queue} is {lag:,.0f} s behind: {row.length:,} jobs queued, {row.busy:,} in hand",
            "more nodes, or threads if jobs wait for others, when all are busy (lowkiq nodes); "
            "else see what they are at: lowkiq-supervisor dump",
        )
    if not behind and lags:
        yield ok(f"no job with a node is more than {LATE:g} s late")


def deaths(patient: Patient) -> Iterator[Verdict]:
    """Jobs that took their node with them."""
    queues = [queue for queue, row in patient.queues.items() if row.morgue_length]
    is_well = True
    for queue in queues:
        if ids := probes.read_buried(patient.caller, _shards(patient, queue)):
            is_well = False
            yield warning(
                f"jobs of queue {queue} went to the morgue because nodes died at them: {_listed(ids)}",
                f"see the nodes' last exits (out of memory?), then: lowkiq morgue revive {queue} ID",
            )
    if is_well:
        yield ok("no job in the morgue for killing its node")
    if queues:
        dead = _listed([f"{queue} {patient.queues[queue].morgue_length:,}" for queue in queues])
        yield note(f"jobs in the morgue, which wait for somebody to look: {dead}")


def _shards(patient: Patient, queue: str) -> list[Shard]:
    return patient.app.shards(queue, patient.layouts[queue].shards_count)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(printable(name) for name in names[:MANY]) + more
