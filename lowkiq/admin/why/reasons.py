"""
Reasons: the first thing that keeps a job from running, in a sentence. What a person has done comes first, then what the
job waits for by its own rules, then what its queue, its node and its machine lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lowkiq.admin.beats.health import NodeHealth, Running, batch_of
from lowkiq.admin.jobs.states import state_of
from lowkiq.admin.pauses import Hold, by_whom, waits_text
from lowkiq.admin.why.facts import Facts
from lowkiq.admin.words import age, first_of, listed, moment, plural, printable, times
from lowkiq.queue.keys import queue_of

#: Batches of a shard, and queues, that a sentence names.
NAMED: Final = 3
#: Share of its threads from which on a node has none free: in a single look one may be between two jobs.
FULL: Final = 0.9
#: States of a node in which it claims nothing, as a sentence has them.
STOPPED: Final = {"quiet": "quiet", "draining": "stopping", "retiring": "stopping"}

#: Code → what it means, for the API's document.
CODES: Final[Mapping[str, str]] = {
    "paused": "somebody has paused its queue",
    "held": "somebody holds it",
    "waits": "it runs after other jobs",
    "blocked": "it has failed too often, and waits for a person",
    "own run": "its id runs, and this follows",
    "rate": "it has a place in the line of its rate",
    "throttle": "its id has started lately",
    "debounce": "something was pushed to it lately",
    "suspect": "nodes have died with it in hand: it is tried alone",
    "retry": "it has failed, and waits for its next try",
    "scheduled": "it was pushed for later",
    "max_running": "as many batches of its queue run as may",
    "reshard": "its queue gets another number of shards",
    "late": "the node that has its shard is not heard of",
    "quiet": "the node that has its shard takes no new jobs",
    "retiring": "the node that has its shard ends",
    "moving": "its shard goes to another node",
    "refused": "nodes leave its queue alone",
    "no node": "no node has its shard",
    "redis": "the node that has its shard can't use Redis",
    "event loop": "the event loop of its node is blocked",
    "concurrency": "as many batches of its shard run as may",
    "threads": "all threads of its node are busy",
    "fair turn": "its tenant takes turns with others",
    "ahead": "other jobs come before it",
    "next": "nothing: it runs next",
    "runs": "it runs, or is about to",
    "lost": "it was in the hands of a node that is gone",
    "morgue": "it is dead until somebody revives it",
}


class Reason(msgspec.Struct, frozen=True):
    """Why a job does not run just now, or that it does."""

    code: Annotated[str, Meta(description="; ".join(f"{code}: {means}" for code, means in CODES.items()))]
    says: Annotated[str, Meta(description="A sentence without its full stop.")]
    cause: Annotated[str, Meta(description="The cause alone, as a part of a sentence.")] = ""
    state: Annotated[str, Meta(description="The state of the job, as its queue's page has it.")] = ""


def why(facts: Facts) -> Reason:
    """The reason for which a job does not run just now, with its state."""
    reason = next(found for rule in _RULES if (found := rule(facts)))
    return msgspec.structs.replace(reason, state=state_of(facts.job, facts.at))


# ── where it is ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _elsewhere(facts: Facts) -> Reason | None:
    """In the hands of a node, or in the morgue."""
    job = facts.job
    if job.where == "morgue":
        return Reason("morgue", f"In the morgue since {moment(job.at)}: nothing runs it until somebody revives it")
    if job.where != "claim":
        return None
    owner = facts.name_of(facts.shard.owner)
    if not facts.shard.lease_rest:
        rest = f"whose lease has run out: the next node of shard {job.shard} runs it again"
        return Reason("lost", f"In the hands of {owner}, {rest}")
    return Reason("runs", _in_flight(facts, owner))


def _in_flight(facts: Facts, owner: str) -> str:
    running = batch_of(facts.job.id, facts.batches)
    if not facts.batches:
        return f"Claimed by {owner}: about to be performed, or just done"
    if running is None:
        return f"Claimed by {owner}, and next: its shard has been at {_performed_of(facts.batches)}"
    who = f"{facts.name_of(running.node.node)}, {running.place}"
    if running.has(facts.job.id):
        return f"Performed by {who}, for {age(running.seconds)} so far"
    return f"Claimed by {who}: performed in the batch of {_performed(running)}, or next"


# ── what a person has done ──────────────────────────────────────────────────────────────────────────────────────────


def _paused(facts: Facts) -> Reason | None:
    pause = facts.shard.pause
    if not pause:
        return None
    since = f", {age(facts.at - pause.since)} ago" if pause.since else ""
    cause = f"its queue is paused{by_whom(pause)}{since}"
    return Reason("paused", f"Not run, since {cause}: nothing of it starts until somebody resumes it", cause)


def _held(facts: Facts) -> Reason | None:
    hold = facts.hold
    if not (facts.job.is_held and hold):
        return None
    return Reason("held" if hold.by_person else "waits", held_text(hold, facts.at))


def held_text(hold: Hold, at: float) -> str:
    """Who holds an id, or for what it waits."""
    held = f", for {age(at - hold.since)} so far"
    if not hold.by_person and hold.waits:
        waits = waits_text(hold.waits)
        return f"{waits[0].upper()}{waits[1:]}{held}. It runs once nothing is left of those; pushes merge"
    return f"Held{by_whom(hold)}{held}. It runs once somebody lets it go; pushes merge"


def _blocked(facts: Facts) -> Reason | None:
    if not facts.job.is_blocked:
        return None
    says = (
        f"Blocked since {moment(facts.job.at)}: it has failed too often, and nothing of its id runs until somebody "
        "retries it, skips its oldest payload, or deletes it"
    )
    return Reason("blocked", says)


# ── what it waits for by its own rules ──────────────────────────────────────────────────────────────────────────────


def _own_run(facts: Facts) -> Reason | None:
    if not facts.job.waits_for_own_run:
        return None
    running = batch_of(facts.job.id, facts.batches)
    how_long = f", for {age(running.seconds)} so far" if running and running.has(facts.job.id) else ""
    says = f"Waits for its own run: its id runs{how_long}; what is queued here follows when that is done"
    return Reason("own run", says)


def _rate(facts: Facts) -> Reason | None:
    place = facts.rate
    if facts.is_due or not place:
        return None
    key = f" for {printable(place.key, 80)}" if place.key else ""
    line = f"{plural(place.ahead, 'job')} {'is' if place.ahead == 1 else 'are'} before it in the line"
    return Reason("rate", f"Waits for the rate of its queue{key}, {_until(facts)}: {line}")


def _throttle(facts: Facts) -> Reason | None:
    if facts.is_due or (facts.spaced_until or 0.0) <= facts.at:
        return None
    return Reason("throttle", f"Waits for its throttle, {_until(facts)}: its id has started lately")


def _debounce(facts: Facts) -> Reason | None:
    if facts.is_due or not facts.debounced_until:
        return None
    latest = f"further pushes move it, to {moment(facts.debounced_until)} at the latest"
    return Reason("debounce", f"Waits for pushes to pause (debounce), {_until(facts)}: {latest}")


def _later(facts: Facts) -> Reason | None:
    """What has failed, killed nodes, or was pushed for later."""
    if facts.is_due:
        return None
    if facts.crowds:
        return Reason("suspect", f"Waits {_until(facts)}: {_suspected(facts)}")
    failures = facts.job.retry_count + 1
    if failures:
        return Reason("retry", f"Not due {_until(facts)}: it failed {times(failures)} and tries again then")
    return Reason("scheduled", f"Not due {_until(facts)}: it was pushed for then")


def _until(facts: Facts) -> str:
    return f"until {moment(facts.job.at)}, in {age(facts.job.at - facts.at)}"


def _suspected(facts: Facts) -> str:
    died = "nodes have died" if facts.job.crashes + facts.crowds > 1 else "a node has died"
    return f"{died} with it in hand, so it is tried alone, in a process of its own"


# ── what its queue, its node and its machine lack ───────────────────────────────────────────────────────────────────


def _max_running(facts: Facts) -> Reason | None:
    if not (facts.limit and facts.limit.is_reached):
        return None
    return _due("max_running", facts, f"its max_running is reached: {facts.limit.text}")


def _suspect(facts: Facts) -> Reason | None:
    return Reason("suspect", f"Due; {_suspected(facts)}", _suspected(facts)) if facts.crowds else None


def _reshard(facts: Facts) -> Reason | None:
    moved = facts.reshard
    if not moved:
        return None
    cause = (
        f"its shard {facts.job.shard} is being moved: the queue goes from {moved.before:,} to {moved.shards:,} shards"
    )
    return _but("reshard", cause)


def _owner(facts: Facts) -> Reason | None:
    """The node that has the shard, if that claims nothing just now."""
    node, shard = facts.node, facts.job.shard
    who = f"{facts.name_of(facts.shard.owner)}, which has shard {shard},"
    if facts.owner.why == "lease" and facts.shard.lease_rest:
        heard = f"has not been heard of for {age(node.beat_age)}" if node else "is not heard of"
        return _but("late", f"{who} {heard}; {facts.owner.says.partition('; ')[2]}")
    if facts.owner.why == "drain":
        return _but("retiring", f"{who} ends, and takes no new jobs: {facts.owner.says.partition(': ')[2]}")
    if node and facts.shard.lease_rest and node.state in STOPPED:
        return _but("quiet", f"{who} is {STOPPED[node.state]}: it takes no new jobs")
    if facts.owner.why == "handover" and facts.owner.target:
        return _but("moving", f"shard {shard} moves: {facts.owner.says}")
    return None


def _no_node(facts: Facts) -> Reason | None:
    shard = facts.shard
    if shard.owner and shard.lease_rest:
        return None
    refusals = {why for node in facts.nodes.values() for queue, why in node.refused.items() if queue == facts.queue}
    if refusals and facts.owner.why == "nobody":
        return _but("refused", f"nodes leave its queue alone: {printable(min(refusals), 300)}")
    if shard.owner is None:
        last = "none has had it so far"
    else:
        last = f"the lease of the last one, {facts.name_of(shard.owner)}, has run out"
    return _but("no node", f"shard {shard.shard} has no node: {last}; {facts.owner.says}")


def _redis(facts: Facts) -> Reason | None:
    node = facts.node
    if not (node and node.redis_error):
        return None
    return _but(
        "redis",
        f"{facts.name_of(node.node)}, which has shard {facts.job.shard}, can't use Redis: "
        f"{printable(node.redis_error, 200)}",
    )


def _event_loop(facts: Facts) -> Reason | None:
    node = facts.node
    if not (facts.is_async and node and node.is_blocked):
        return None
    blocked = f"the event loop of {facts.name_of(node.node)} is blocked, for {age(node.loop_lag)} so far"
    return _due("event loop", facts, blocked)


def _concurrency(facts: Facts) -> Reason | None:
    most = facts.concurrency
    if most is None or len(facts.batches) < most:
        return None
    at_a_time = "one batch" if most == 1 else f"{most:,} batches"
    at_work = _performed_of(facts.batches)
    return _due("concurrency", facts, f"shard {facts.job.shard} runs {at_a_time} at a time (concurrency): {at_work}")


def _threads(facts: Facts) -> Reason | None:
    if facts.is_async or not facts.node or not is_full([facts.node]):
        return None
    return _due("threads", facts, threads_text([facts.node], facts.name_of(facts.node.node)))


def is_full(nodes: Sequence[NodeHealth]) -> bool:
    """True if no thread of these nodes is free, but for moments."""
    threads = [thread for node in nodes for thread in node.threads]
    loads = sum(load for node in nodes for shards in node.loads.values() for load in shards.values())
    return bool(threads) and (all(thread.queue is not None for thread in threads) or loads >= FULL * len(threads))


def threads_text(nodes: Sequence[NodeHealth], whose: str) -> str:
    """That all of their threads are busy, and which queues have most of them."""
    counts: dict[str, float] = {}
    for node in nodes:
        held: list[tuple[str, float]] = [(thread.queue, 1.0) for thread in node.threads if thread.queue is not None]
        loads = [(queue_of(part), sum(shards.values())) for part, shards in node.loads.items()]
        for queue, load in loads if sum(load for _, load in loads) >= FULL * len(node.threads) else held:
            counts[queue] = counts.get(queue, 0.0) + load
    total = sum(len(node.threads) for node in nodes)
    most = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:NAMED]
    named = [f"{printable(queue, 60)} has {count}" for queue, load in most if (count := min(round(load), total))]
    of = "the only thread" if total == 1 else f"all {total:,} threads"
    return f"{of} of {whose} {'is' if total == 1 else 'are'} busy: {listed(named)}"


def _fair_turn(facts: Facts) -> Reason | None:
    turn = facts.turn
    if not turn or turn.tenants < 2 or not facts.ahead:  # noqa: PLR2004 (with itself it shares nothing)
        return None
    whose = (
        f"{plural(turn.ahead, 'job')} of {printable(turn.tenant, 80)} {'is' if turn.ahead == 1 else 'are'} before it"
    )
    cause = f"its tenant takes turns with {plural(turn.tenants - 1, 'other')} in shard {facts.job.shard}"
    return Reason("fair turn", f"Due; {whose}, and {cause}{_at_work(facts)}", cause)


def _ahead(facts: Facts) -> Reason:
    shard = facts.job.shard
    cause = f"its jobs wait for what runs in shard {shard}: {_performed_of(facts.batches)}" if facts.batches else ""
    says = f"Due; {_before(facts)} in shard {shard}{_at_work(facts)}"
    return Reason("ahead" if facts.ahead or facts.batches else "next", says, cause)


def _at_work(facts: Facts) -> str:
    if facts.batches:
        return f", which has been at {_performed_of(facts.batches)}"
    return f" of {facts.name_of(facts.shard.owner)}"


def _before(facts: Facts) -> str:
    if not facts.ahead:
        return "it is the first"
    return f"{plural(facts.ahead, 'job')} {'is' if facts.ahead == 1 else 'are'} before it"


def _due(code: str, facts: Facts, cause: str) -> Reason:
    return Reason(code, f"Due; {_before(facts)}, and {cause}", cause)


def _but(code: str, cause: str) -> Reason:
    return Reason(code, f"Due, but {cause}", cause)


def _performed_of(batches: Sequence[Running]) -> str:
    """What is performed of a shard, the longest first."""
    return first_of(batches, NAMED, _performed)


def _performed(running: Running) -> str:
    return f"{running.jobs} for {age(running.seconds)}"


#: The first that has something to say is the reason; the last always has.
_RULES: Final[Sequence[Callable[[Facts], Reason | None]]] = (
    _elsewhere, _paused, _held, _blocked, _own_run, _rate, _throttle, _debounce, _later, _max_running, _suspect,
    _reshard, _owner, _no_node, _redis, _event_loop, _concurrency, _threads, _fair_turn, _ahead,
)  # fmt: skip
