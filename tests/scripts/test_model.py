"""Random histories of one shard beside a model of it in plain Python: after every step both hold the same."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lowkiq.store.shard import Exhausted, Failure, Spoiled
from tests.scripts.shard_driver import FUTURE, PAST, Payloads, ShardDriver

MAX_CRASHES = 2
IDS = st.sampled_from(["a", "b", "c", "d"])
SCORES = st.sampled_from([1.0, 2.0, 3.0, 10.0])
PAYLOADS = st.sampled_from([b"", b"p", b"q:1", b"*"])
ROWS = st.lists(st.tuples(IDS, PAYLOADS, SCORES, st.sampled_from([PAST, PAST + 1, "", FUTURE])), min_size=1, max_size=4)
FATES = st.sampled_from(["acked", "released", "failed", "retried", "exhausted", "spoiled", "left", "left", "left"])

#: When a job is due, in the order of due times: a time of the past; the time of a step; some time to come.
Due = tuple[int, float]


@dataclass
class Entry:
    payloads: Payloads
    due: Due = (1, 0)
    retry_count: int = -1


@dataclass
class Model:
    """What a shard holds, and the rules of merging."""

    queued: dict[str, Entry] = field(default_factory=dict)
    claimed: dict[str, Entry] = field(default_factory=dict)
    morgue: dict[str, Payloads] = field(default_factory=dict)
    crashes: dict[str, int] = field(default_factory=dict)

    def push(self, id: str, payload: bytes, score: float, due: Due) -> None:
        entry = self.queued.setdefault(id, Entry({}, due))
        merge(entry.payloads, {payload: score})

    def claim(self, limit: int, max_payloads: int) -> None:
        due = sorted((entry.due, id) for id, entry in self.queued.items() if entry.due[0] < 2)
        ids = [id for _, id in due[:limit]]
        for position, id in enumerate(ids):
            if id in self.crashes:
                ids = ids[: max(position, 1)]
                break
        for id in ids:
            entry = self.queued.pop(id)
            order = lowest_first(entry.payloads)
            self.claimed[id] = Entry(dict(order[:max_payloads]), entry.due, entry.retry_count)
            if order[max_payloads:]:
                self.queued[id] = Entry(dict(order[max_payloads:]), entry.due)

    def requeue(self, id: str, back: Entry) -> None:
        entry = self.queued.setdefault(id, Entry({}))
        merge(entry.payloads, back.payloads)
        entry.due, entry.retry_count = back.due, back.retry_count

    def bury(self, id: str, payloads: Payloads) -> None:
        merge(self.morgue.setdefault(id, {}), payloads)

    def settle(self, id: str, fate: str, now: Due) -> None:
        entry = self.claimed.pop(id)
        if fate == "spoiled":
            payload, score = lowest_first(entry.payloads)[0]
            self.bury(id, {payload: score})
            del entry.payloads[payload]
            fate = "left" if entry.payloads else "acked"
        match fate:
            case "left":
                self.claimed[id] = entry
                return
            case "released":
                self.requeue(id, entry)
                return
            case "failed" | "retried":
                self.requeue(id, Entry(entry.payloads, (2, now[1]) if fate == "failed" else now, entry.retry_count + 1))
            case "exhausted":
                payload, score = lowest_first(entry.payloads)[0]
                self.bury(id, {payload: score})
                del entry.payloads[payload]
                if entry.payloads:
                    self.requeue(id, Entry(entry.payloads, now))
        self.crashes.pop(id, None)

    def restore(self, *, crashed: bool) -> None:
        claimed, self.claimed = self.claimed, {}
        for id, entry in claimed.items():
            deaths = self.crashes.get(id, 0) + crashed
            if deaths:
                self.crashes[id] = deaths
            if crashed and deaths >= MAX_CRASHES:
                self.bury(id, entry.payloads)
                del self.crashes[id]
            else:
                self.requeue(id, entry)

    def leave_queue(self, id: str) -> Payloads:
        if id not in self.claimed:
            self.crashes.pop(id, None)
        return self.queued.pop(id).payloads


def merge(into: Payloads, payloads: Payloads) -> None:
    for payload, score in payloads.items():
        into[payload] = min(score, into.get(payload, score))


def lowest_first(payloads: Payloads) -> list[tuple[bytes, float]]:
    return sorted(payloads.items(), key=lambda item: (item[1], item[0]))


class ShardMachine(RuleBasedStateMachine):
    numbers = itertools.count()

    def __init__(self, app) -> None:
        super().__init__()
        self.shard = ShardDriver(app, queue=f"q{next(self.numbers)}")
        self.model = Model()
        self.lease = self.shard.lease("node-0")
        self.started = self.shard.now()
        self.step = self.nodes = 0

    def tick(self) -> Due:
        """The time of a step: later than that of the one before."""
        self.step += 1
        return (1, self.step)

    @rule(rows=ROWS)
    def push(self, rows):
        now = self.tick()
        known = set(self.model.queued)
        for id, payload, score, perform_in in rows:
            due = now if perform_in == "" else (2, perform_in) if perform_in == FUTURE else (0, perform_in)
            self.model.push(id, payload, score, due)
        new = len({row[0] for row in rows} - known)
        assert self.shard.push_all(*rows) == (new, len(rows) - new)

    @precondition(lambda self: not self.model.claimed)
    @rule(limit=st.integers(1, 4), max_payloads=st.integers(1, 4))
    def claim(self, limit, max_payloads):
        self.tick()
        self.model.claim(limit, max_payloads)
        jobs = self.lease.claim(limit, max_payloads)
        got = [(job.id, list(zip(job.payloads, job.scores, strict=True)), job.retry_count) for job in jobs]
        assert got == [
            (id, lowest_first(entry.payloads), entry.retry_count) for id, entry in self.model.claimed.items()
        ]

    @precondition(lambda self: self.model.claimed)
    @rule(data=st.data(), rest=st.sampled_from(["keep", "ack", "release"]), repeat=st.booleans())
    def settle(self, data, rest, repeat):
        now = self.tick()
        outcome = {"acked": [], "released": [], "failed": [], "exhausted": [], "spoiled": []}
        for id, entry in list(self.model.claimed.items()):
            fate = data.draw(FATES)
            lowest = lowest_first(entry.payloads)[0][0]
            match fate:
                case "acked" | "released":
                    outcome[fate].append(id)
                case "failed" | "retried":
                    outcome["failed"].append(Failure(id, entry.retry_count + 1, 0 if fate == "retried" else 1e6, "e"))
                case "exhausted":
                    outcome["exhausted"].append(Exhausted(id, "e"))
                case "spoiled":
                    outcome["spoiled"].append(Spoiled(id, lowest, "e"))
            self.model.settle(id, fate, now)
        for id in list(self.model.claimed) if rest == "ack" else ():
            self.model.settle(id, "acked", now)
        if rest == "release":
            self.model.restore(crashed=False)
        self.lease.settle(**outcome, rest=rest)
        if repeat and rest != "keep":
            assert self.lease.settle(**outcome, rest=rest)[:3] == (0, 0, 0)

    @rule()
    def repeat_an_earlier_settle(self):
        assert self.lease.settle(number=self.lease.number - 1, acked=["a", "b"], rest="ack")[:3] == (0, 0, 0)

    @rule()
    def release_the_claim(self):
        assert self.lease.release("claim").restored == len(self.model.claimed)
        self.model.restore(crashed=False)

    @rule(how=st.sampled_from(["dead", "dead", "dead", "released", "abandoned", "same node"]))
    def take_over(self, how):
        match how:
            case "released":
                self.lease.release("lease")
            case "abandoned":
                self.lease.abandon()
        before, self.nodes = self.lease, self.nodes + (how != "same node")
        self.model.restore(crashed=how == "dead")
        self.lease = self.shard.lease(f"node-{self.nodes}", max_crashes=MAX_CRASHES, dead=[before.node])
        assert int(self.lease.epoch) > int(before.epoch)
        assert not before.renew()

    @rule(id=IDS)
    def revive(self, id):
        now = self.tick()
        assert self.shard.actions.morgue_queue_up([id]) == (id in self.model.morgue)
        if id in self.model.morgue:
            self.model.requeue(id, Entry(self.model.morgue.pop(id), now))

    @rule(id=IDS, only_failed=st.booleans())
    def bury(self, id, only_failed):
        wanted = id in self.model.queued and (not only_failed or self.model.queued[id].retry_count >= 0)
        assert self.shard.call("bury", 1000, "failed" if only_failed else "any", id) == [wanted]
        if wanted:
            self.model.bury(id, self.model.leave_queue(id))

    @rule(id=IDS, which=st.sampled_from(["queue", "failed", "morgue"]))
    def drop(self, id, which):
        if which == "morgue":
            wanted = self.model.morgue.pop(id, None) is not None
        else:
            wanted = id in self.model.queued and (which == "queue" or self.model.queued[id].retry_count >= 0)
            if wanted:
                self.model.leave_queue(id)
        assert self.shard.call("drop", which, id) == wanted

    @rule(id=IDS)
    def perform_now(self, id):
        now = self.tick()
        later = id in self.model.queued and self.model.queued[id].due[0] == 2
        assert self.shard.call("perform_now", id) == later
        if later:
            self.model.queued[id].due = now

    @invariant()
    def both_hold_the_same(self):
        shard, model = self.shard, self.model
        assert self.entries(shard.queued()) == self.entries(model.queued)
        assert self.entries(shard.claimed()) == self.entries(model.claimed)
        assert {id: dead.payloads for id, dead in shard.morgue().items()} == model.morgue
        assert shard.crashes() == model.crashes
        assert shard.errors().keys() <= model.queued.keys() | model.claimed.keys()
        self.are_due_alike(shard.queued(), model.queued)
        self.are_due_alike(shard.claimed(), model.claimed)

    def are_due_alike(self, jobs, entries):
        now = self.shard.now()
        for id, job in jobs.items():
            kind, due = entries[id].due
            assert (job.perform_in == due, self.started <= job.perform_in <= now, job.perform_in > now + 1000)[kind]

    @staticmethod
    def entries(jobs):
        return {id: (job.payloads, job.retry_count) for id, job in jobs.items()}


def test_a_shard_does_what_its_model_does(app):
    run_state_machine_as_test(
        lambda: ShardMachine(app),
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            # Without shrinking, which takes minutes: each try is a whole history on Redis.
            phases=(Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )
