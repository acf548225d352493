"""FakeQueue: one queue of a fake: for each of its shards the model of what Redis would hold of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from lowkiq.codec import name_of
from lowkiq.failure import parts_of
from lowkiq.job import KEPT_BYTES, EncodedJob, Job, Pushed, parse_tags, shard_of
from lowkiq.queue import keys
from lowkiq.queue.claims import Claim, parse_claim
from lowkiq.queue.shard import MAX_CLAIM_PAYLOADS, Outcome, Owned, Shard
from lowkiq.settings import Settings
from lowkiq.testing.clock import Clock
from lowkiq.testing.model.shard_model import ShardModel
from lowkiq.testing.model.shard_state import SECOND, Asked, Delay, Entry, Payloads, Tags, lowest_first
from lowkiq.worker import Worker

#: The node that owns all shards of a fake, for ever: nobody else comes.
NODE: Final = "lowkiq.testing"
FOR_EVER: Final = 1_000 * 366 * 86_400 * SECOND


class Push(NamedTuple):
    """A payload that was pushed."""

    id: str
    #: As perform is given it.
    payload: Any
    #: What its push has said; None: nothing of that.
    score: float | None
    perform_in: float | None
    delay: float | None
    tags: tuple[str, ...]
    #: When it was pushed, by the fake's clock.
    at: float


class Taken(NamedTuple):
    """A claim, and its place."""

    #: Of the shard.
    at: int
    number: int
    epoch: int
    claim: Claim


class FakeQueue:
    """Threads can share it: pushes may come from those of a server under test."""

    def __init__(self, worker: type[Worker[Any]], settings: Settings, clock: Clock) -> None:
        self.worker, self._settings, self._clock = worker, settings, clock
        count = worker.shards_count
        self._layout = keys.Layout(keys.LAYOUT_VERSION, count).text
        self.shards = [Shard(settings.namespace, worker.queue_name, index, count) for index in range(count)]
        self._models = [ShardModel() for _ in range(count)]
        self._epochs = [self._acquire(model) for model in self._models]
        self._numbers = [0] * count
        self._lock = threading.RLock()
        self._pushed: list[tuple[EncodedJob, int]] = []
        #: When an id got into the morgue.
        self._buried_at: dict[str, int] = {}

    # ── what producers do ───────────────────────────────────────────────────────────────────────────────────────────

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed:
        """Puts validated jobs into the queue, each a moment after the one before."""
        new = merged = 0
        with self._lock:
            for job in jobs:
                model = self._models[shard_of(job.id, len(self._models))]
                model.now = self._clock.tick()
                more = model.push(self._layout, [_row(job)], ("", model.now), [_asked(job.fewer)])
                new, merged = new + more[0], merged + more[1]
                self._pushed.append((job, model.now))
        return Pushed(new, merged)

    def perform_now(self, id: bytes) -> None:
        """Has an id be due at once that waits for its time."""
        with self._lock:
            model = self._models[shard_of(id, len(self._models))]
            model.now = self._clock.tick()
            model.perform_now(self._layout, id.decode("utf-8", KEPT_BYTES))
            self._clock.move_to(model.state.last_score)

    def hold(self, id: str) -> None:
        """Keeps an id from being run."""
        with self._lock:
            self._model_of(id).hold(self._layout, b"{}", id)

    def let_go(self, id: str) -> None:
        """Has it run again."""
        with self._lock:
            model = self._model_of(id)
            model.now = self._clock.now
            model.let_go(self._layout, id)

    def has(self, id: str) -> bool:
        """Returns whether anything of an id is queued, runs or is in the morgue."""
        with self._lock:
            state = self._model_of(id).state
            return id in state.queued or id in state.claimed or id in state.morgue

    def _model_of(self, id: str) -> ShardModel:
        return self._models[shard_of(id.encode("utf-8", KEPT_BYTES), len(self._models))]

    def note_attempt(self, id: bytes, attempt: int) -> None:
        """Has an id that is queued have failed as often as comes before that attempt."""
        with self._lock:
            state = self._models[shard_of(id, len(self._models))].state
            state.queued[id.decode("utf-8", KEPT_BYTES)].retry_count = attempt - 2

    # ── what a node does ────────────────────────────────────────────────────────────────────────────────────────────

    def next_due(self) -> tuple[int, int] | None:
        """Time of the job that is due first, and its shard; None: nothing is queued that is ever due."""
        with self._lock:
            found = [
                (entry.due, index)
                for index, model in enumerate(self._models)
                for entry in model.state.queued.values()
                if not (entry.waits or entry.blocked)
            ]
        return min(found, default=None)

    def claim(self, index: int, limit: int, max_payloads: int, load: Any, check_id: Any) -> Taken:
        """Claims as many due jobs of a shard."""
        with self._lock:
            model = self._models[index]
            model.now = self._clock.now
            self._numbers[index] += 1
            number, epoch = self._numbers[index], self._epochs[index]
            jobs = model.claim(
                NODE, epoch, number, self._layout, limit, max_payloads, MAX_CLAIM_PAYLOADS, model.state.own,
                is_closed=True,
            )  # fmt: skip
            reply = _reply(jobs, model)
        return Taken(index, number, epoch, parse_claim(reply, load, check_id))

    def settle(self, taken: Taken, outcome: Outcome) -> None:
        """Ends what was claimed."""
        with self._lock:
            model = self._models[taken.at]
            model.now = self._clock.now
            model.settle(NODE, taken.epoch, taken.number, outcome)
            for id in (*(row.id for row in outcome.exhausted), *(row.id for row in outcome.spoiled)):
                if id in model.state.morgue:
                    self._buried_at[id] = model.now

    def checkpoint(self, taken: Taken, id: str, value: bytes) -> bool:
        """Keeps what a job is given back when it is run again. False: its run is over."""
        with self._lock:
            return self._models[taken.at].checkpoint(NODE, taken.epoch, taken.number, id, value)

    def _acquire(self, model: ShardModel) -> int:
        model.now = self._clock.now
        owned = model.acquire(NODE, self._layout, FOR_EVER, 1, {}, is_foster=False, bell="")
        assert isinstance(owned, Owned)  # noqa: S101 (nobody else owns it)
        return int(owned.epoch)

    # ── what people see ─────────────────────────────────────────────────────────────────────────────────────────────

    def pushed(self) -> list[tuple[EncodedJob, Push]]:
        """Pushes, the first first, each as it was sent and as perform is given it."""
        return [(job, _push(job, at, self._load(job.payload))) for job, at in self._pushed]

    def pending(self) -> list[Job]:
        """Queued jobs, in order of time."""
        with self._lock:
            found = [
                self._queued(model, id, entry) for model in self._models for id, entry in model.state.queued.items()
            ]
        return sorted(found, key=lambda job: (job.perform_in, job.scores[0]))

    def morgue(self) -> list[Job]:
        """Buried jobs, the first first."""
        with self._lock:
            found = [
                self._job(id, grave.payloads, self._buried_at.get(id, 0), -1, grave.error, grave.tags)
                for model in self._models
                for id, grave in model.state.morgue.items()
            ]
        return sorted(found, key=lambda job: job.perform_in)

    def _queued(self, model: ShardModel, id: str, entry: Entry) -> Job:
        error = model.state.errors.get(id)
        due = entry.blocked if entry.blocked is not None else entry.due
        job = self._job(id, entry.payloads, due, entry.retry_count, error, entry.tags)
        job.waits_for_own_run, job.is_blocked = entry.waits, entry.blocked is not None
        return job

    def _job(self, id: str, payloads: Payloads, at: int, retry_count: int, stored: str | None, tags: Tags) -> Job:
        order = lowest_first(payloads)
        error, frames = parts_of(self._settings.load_error(stored)) if stored else (None, None)
        loaded = [self._load(payload) for payload, _ in order]
        scores = tuple(score / SECOND for _, score in order)
        shown = parse_tags("\n".join(tags).encode())
        return Job(id, loaded, scores, at / SECOND, retry_count, error, len(order), traceback=frames, tags=shown)

    def _load(self, payload: bytes) -> Any:
        """A payload as perform is given it; one that can't be loaded as it is stored, as queries have it."""
        try:
            return self.worker.codec.load(payload)
        except Exception:  # noqa: BLE001 (load_payload is the user's)
            return payload


def _row(job: EncodedJob) -> tuple[str, bytes, int | None, int | None, Tags, str]:
    """A job as the model takes it."""
    due = None if job.perform_in == "" else _microseconds(job.perform_in)
    return (
        job.id.decode("utf-8", KEPT_BYTES),
        job.payload,
        None if job.score == "" else _microseconds(job.score),
        Delay(due) if due is not None and job.perform_in.startswith("+") else due,
        tuple(job.tags.split("\n")) if job.tags else (),  # with a context behind them, which nobody sees as a tag
        job.tenant,
    )


def _asked(word: str) -> Asked:
    """How a job asks for fewer runs (fewer.py)."""
    if not word:
        return Asked()
    wait, at_most, throttle, keep = word.split(":")
    if not wait:
        return Asked(throttle=_microseconds(throttle) if throttle else None, keep=keep)
    return Asked(_microseconds(wait), _microseconds(at_most), _microseconds(throttle) if throttle else None, keep)


def _microseconds(seconds: float | str) -> int:
    """Exact, however large it is."""
    return round(Fraction(seconds) * SECOND)


def _reply(jobs: Sequence[tuple[Any, ...]], model: ShardModel) -> list[Any]:
    """Reply that Redis would have given to a claim, so that a node's own code reads it."""
    found: list[Any] = []
    checkpoints: list[bytes] = []
    tagged: list[bytes] = []
    for id, payloads, due, retry_count, _, _, tags in jobs:
        name = id.encode("utf-8", KEPT_BYTES)
        pairs = [part for payload, score in payloads for part in (payload, _text(score))]
        found += (name, [b"%b:%d" % (_text(due), retry_count), *pairs])
        if id in model.state.checkpoints:
            payload, value = model.state.checkpoints[id]
            known = name_of(payload)
            checkpoints += (name, b"%d:%b%b" % (len(known), known, value))
        if tags:
            tagged += (name, "\n".join(tags).encode())
    return [_text(model.now), b"", found, 0, [], checkpoints, tagged]


def _text(microseconds: int) -> bytes:
    return repr(microseconds / SECOND).encode()


def _push(job: EncodedJob, at: int, payload: Any) -> Push:
    is_delay = job.perform_in.startswith("+")
    return Push(
        id=job.id.decode("utf-8", KEPT_BYTES),
        payload=payload,
        score=None if job.score == "" else float(job.score),
        perform_in=float(job.perform_in) if job.perform_in and not is_delay else None,
        delay=float(job.perform_in) if is_delay else None,
        tags=parse_tags(job.tags.encode()),
        at=at / SECOND,
    )
