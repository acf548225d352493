"""Checks of queues: does the code agree with Redis, and does somebody run what is due?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lowkiq.admin import probes
from lowkiq.admin.alerts.redis import of_unreadable
from lowkiq.admin.jobs.bulks import read_bulks
from lowkiq.admin.limits import read_limits
from lowkiq.admin.live import read_live
from lowkiq.admin.past.history import SPANS, TOTAL, read_history
from lowkiq.admin.words import age, printable
from lowkiq.doctor.subject import Subject, Verdict, note, of_alert, of_alerts, ok, problem, warning
from lowkiq.queue import keys
from lowkiq.queue.call import redis_time
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import layout_error
from lowkiq.queue.rates import read_waiting
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.rate import Rate, parse_rate

#: Seconds by which a job may be late before people should know.
LATE: Final = 60.0
#: Seconds within which a node on a busy machine starts what it may.
FRESH: Final = 0.002
#: Jobs a second that a rate may have: each job over it is claimed twice, and alone.
MOST_A_SECOND: Final = 2_000
#: Names that are listed one by one.
MANY: Final = 10


def shards_count(subject: Subject) -> Iterator[Verdict]:
    """Code against Redis, which nodes and producers follow."""
    if not subject.has_app:
        yield note("no application was named: say -r MODULE to have its queues checked")
        return
    if not subject.app.workers:
        yield warning("the application has no workers", "register one with @app.worker")
    known_ones = {queue: known for queue in subject.app.workers if (known := subject.layouts.get(queue))}
    agreed: list[str] = []
    resharded: list[str] = []
    unknown = [queue for queue in subject.app.workers if queue not in known_ones]
    for queue, known in known_ones.items():
        count = subject.app.workers[queue].shards_count
        if layout_error(queue, known):  # layouts() tells
            continue
        if known.shards_count == count:
            agreed.append(queue)
        elif known.generation > 1:
            resharded.append(f"{queue} to {known.shards_count}")
        else:
            says = f"queue {queue} has {known.shards_count} shards, whatever shards_count {count} its code begins with"
            yield warning(says, f"set shards_count = {known.shards_count}, or run `lowkiq reshard {queue} {count}`")
    if agreed:
        yield ok(f"shards_count agrees with Redis: {_listed(agreed)}")
    if resharded:
        yield note(f"resharded, whatever shards_count their code begins with: {_listed(resharded)}")
    if unknown:
        yield note(f"not in Redis yet, the first push or node makes them: {_listed(unknown)}")


def layouts(subject: Subject) -> Iterator[Verdict]:
    """This version must be able to write to every queue, and every shard must have its queue's shards_count."""
    newer = [queue for queue, one in subject.layouts.items() if one.version > keys.LAYOUT_VERSION]
    for queue in newer:
        yield _newer(queue, subject.layouts[queue].version)
    shards = [shard for queue in subject.layouts.keys() - set(newer) for shard in _shards(subject, queue)]
    layouts = probes.read_shard_layouts(subject.caller, shards)
    found = [(shard, one) for shard, one in zip(shards, layouts, strict=True) if one]
    odd = [
        (shard, one)
        for shard, one in found
        if one.version > keys.LAYOUT_VERSION
        or (one.shards_count != _count(shard) and one.own != subject.layouts[shard.queue].own)
    ]
    for shard, one in odd[:MANY]:
        if one.version > keys.LAYOUT_VERSION:
            yield _newer(f"{shard.queue} (shard {shard.index})", one.version)
        else:
            count, queues = one.shards_count, _count(shard)
            says = f"shard {shard.index} of queue {shard.queue} was written with shards_count {count}, the queue has"
            do = f"set shards_count = {count}, or choose another queue_name"
            yield problem(f"{says} {queues}: nobody can use it", do)
    if not newer and not odd:
        yield ok(f"layout {keys.LAYOUT_VERSION}, as this version writes it")


def _newer(queue: str, version: int) -> Verdict:
    says, _, do = str(keys.newer_layout(queue, version)).partition(": ")
    return problem(says, f"{do}: a newer Lowkiq has taken the queue over")


def readable(subject: Subject) -> Iterator[Verdict]:
    """Values that somebody else has written, in all that Lowkiq keeps."""
    caller, namespace = subject.caller, subject.settings.namespace
    _ = subject.nodes  # which reads queues, shards and heartbeats
    read_bulks(caller, namespace)
    for queue in [TOTAL, *list(subject.queues)[:MANY]]:
        for span in SPANS:
            read_history(caller, namespace, queue, span)
    found = caller.met.now()
    verdicts = map(of_alert, of_unreadable(found))
    yield from verdicts if found else [ok("nothing in Redis that can't be read")]


def unserved(subject: Subject) -> Iterator[Verdict]:
    """Queues that nobody works off: renamed, or of code that is gone."""
    if not subject.has_app:
        return
    held = {shard.queue for shard in subject.shards if shard.lease_rest > 0}
    for queue, row in subject.queues.items():
        jobs = row.length + row.busy
        if jobs and queue not in subject.app.workers and queue not in held:
            queries = f"lowkiq.Lowkiq().queries({queue!r}, {subject.layouts[queue].shards_count})"
            do = f"run the application that has it; or push them anew elsewhere: {queries}"
            yield warning(f"queue {queue} has {jobs:,} jobs, no worker in this application and no node", do)


def unowned(subject: Subject) -> Iterator[Verdict]:
    """Jobs that are lost, jobs that are due, or were in hand, where nobody is; and queues that nodes leave alone."""
    yield from of_alerts(subject, "emptied")
    if subject.nodes.unowned and not subject.nodes.nodes:
        yield from of_alerts(subject, "no nodes", level="warning")
        return
    yield from of_alerts(subject, "unowned", "refused") or [ok("every shard with jobs due has a node")]


def late(subject: Subject) -> Iterator[Verdict]:
    """Jobs that wait although their shard has a node."""
    limit = subject.settings.alert_lag
    served = [shard for shard in subject.shards if shard.lease_rest > 0 and shard.due_in is not None]
    alerts = of_alerts(subject, "late queue", "rate", level="warning")
    is_told = alerts or any(alert.queues for alert in subject.alerts)  # by the alert of a node that is away
    yield from alerts
    if served and limit and not is_told:
        yield ok(f"no job with a node is more than {limit:g} s late")


def reshards(subject: Subject) -> Iterator[Verdict]:
    """Queues that are being resharded: an alert says if that stands still."""
    found = of_alerts(subject, "reshard")
    yield from found or [note(f"{printable(queue, None)}: {one.says}") for queue, one in subject.reshards.items()]


def settings(subject: Subject) -> Iterator[Verdict]:
    """Options that people have set in place of those of the code, and may have forgotten."""
    live = read_live(subject.caller, subject.settings.namespace)
    for queue, found in sorted(live.items()):
        worker = subject.app.workers.get(queue) if subject.has_app else None
        said = [
            f"{name} = {one.value} by {printable(one.who, 60)}"
            + (f" (code: {getattr(worker, name)})" if hasattr(worker, name) else "")
            for name, one in sorted(found.items())
        ]
        yield note(f"queue {printable(queue, 60)} has live settings: {_listed(said)}; lowkiq unset ends that")
        weight = found.get("weight")
        if weight and weight.value and not any(node.runs(queue) for node in subject.nodes.nodes):
            name = printable(queue, 60)
            says = f"queue {name} has a weight of {weight.value}, and no node runs it: nothing is shared"
            yield warning(says, f"start a node that names it in --queues, or: lowkiq unset {name} weight")


def limits(subject: Subject) -> Iterator[Verdict]:
    """Queues with max_running: who runs them, who waits; and limits that limit nothing."""
    live = read_live(subject.caller, subject.settings.namespace)
    found = read_limits(subject.caller, subject.settings.namespace, subject.queues, live)
    for queue, limit in sorted(found.items()):
        worker = subject.app.workers.get(queue) if subject.has_app else None
        own = live.get(queue, {}).get("concurrency")
        concurrency = own.value if own else worker.concurrency if worker else None
        most = subject.layouts[queue].shards_count * concurrency if isinstance(concurrency, int) else None
        if most is not None and limit.max_running > most:
            says = f"queue {printable(queue, 60)} has max_running {limit.max_running:,}, which limits nothing"
            yield note(f"{says}: shards_count × concurrency are {most:,} batches; leave it out")
        elif limit.is_reached:
            yield note(f"queue {printable(queue, 60)}: {limit.text}")


def rates(subject: Subject) -> Iterator[Verdict]:
    """Rates that can't be kept well, and jobs that wait for theirs."""
    live = read_live(subject.caller, subject.settings.namespace)
    found = {name: worker.rate for name, worker in (subject.app.workers if subject.has_app else {}).items()}
    for queue, options in live.items():
        if setting := options.get("rate"):
            found[queue] = parse_rate(queue, setting.value) if setting.value else None
    for queue, rate in sorted(found.items()):
        if rate:
            yield from _of_rate(printable(queue, 60), rate)
    now = redis_time(subject.caller)
    for queue, row in read_waiting(subject.caller, subject.settings.namespace, list(subject.queues), now).items():
        last = age(row.until - now)
        yield note(f"{row.jobs:,} jobs of queue {printable(queue, 60)} wait for its rate, the last for another {last}")


def _of_rate(queue: str, rate: Rate) -> Iterator[Verdict]:
    if rate.fresh < FRESH:
        says = f"what may start has to do so within {rate.fresh * 1000:.1f} ms, and one that takes longer asks again"
        do = f"say it of more seconds, such as {rate.limit * 10}/{rate.per * 10:g}, or less of it is used"
        yield warning(f"rate {rate} of queue {queue}: {says}", do)
    if rate.limit / rate.per > MOST_A_SECOND:
        says = (
            f"is more than {MOST_A_SECOND:,} jobs a second: each that waits for it is claimed once more, mostly alone"
        )
        yield warning(f"rate {rate} of queue {queue} {says}", "see how many are processed, and whether Redis is busy")


def deaths(subject: Subject) -> Iterator[Verdict]:
    """Jobs that took their node with them."""
    dead = {queue: row.morgue_length for queue, row in subject.queues.items() if row.morgue_length}
    killers = {queue: ids for queue in dead if (ids := probes.read_buried(subject.caller, _shards(subject, queue)))}
    for queue, ids in killers.items():
        says = f"jobs of queue {queue} went to the morgue because nodes died at them: {_listed(ids)}"
        yield warning(says, f"see the nodes' last exits (out of memory?), then: lowkiq morgue revive {queue} ID")
    if not killers:
        yield ok("no job in the morgue for killing its node")
    if dead:
        counts = _listed([f"{queue} {count:,}" for queue, count in dead.items()])
        yield note(f"jobs in the morgue, which wait for somebody to look: {counts}")


def _count(shard: Shard) -> int:
    """The shards_count of a shard's queue, in its generation."""
    return Layout.parse(shard.layout.encode()).shards_count


def _shards(subject: Subject, queue: str) -> list[Shard]:
    return shards_of(subject.settings.namespace, {queue: subject.layouts[queue]})


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(printable(name, None) for name in names[:MANY]) + more
