"""FakeQueue: one queue of a fake: for each of its shards the model of what Redis would hold of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from lowkiq.admin.jobs.actions import as_list
from lowkiq.codec import name_of
from lowkiq.job import KEPT_BYTES, EncodedJob, Pushed, parse_tags, shard_of
from lowkiq.queue import keys
from lowkiq.queue.claims import Claim, parse_claim
from lowkiq.queue.shard import MAX_CLAIM_PAYLOADS, Outcome, Owned, Shard
from lowkiq.settings import Settings
from lowkiq.testing.clock import Clock
from lowkiq.testing.model.shard_model import ShardModel
from lowkiq.testing.model.shard_state import SECOND, Asked, Delay, Tags
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
    at: float | None
    delay: float | None
    tags: tuple[str, ...]
    #: By the fake's clock.
    pushed_at: float


class Taken(NamedTuple):
    """A claim, and its place."""

    #: Of the shard.
    at: int
    number: int
    epoch: int
    claim: Claim


@dataclass
class Waiting:
    """What an id waits for (`after`): "queue shards_count id", or a batch that is open; and how many are done."""

    names: dict[str, None] = field(default_factory=dict)
    done: int = 0


class FakeQueue:
    """Threads can share it: pushes may come from those of a server under test."""

    def __init__(self, worker: type[Worker[Any]], settings: Settings, clock: Clock) -> None:
        self.worker, self._settings, self._clock = worker, settings, clock
        count = worker.shards_count
        self._layout = keys.Layout.first(count).text
        self.shards = [Shard(settings.namespace, worker.queue_name, index, count) for index in range(count)]
        self._models = [ShardModel() for _ in range(count)]
        self._epochs = [self._acquire(model) for model in self._models]
        self._numbers = [0] * count
        self._lock = threading.RLock()
        self._pushed: list[tuple[EncodedJob, int]] = []
        #: Ids that people hold, with who and why. Those are held that are here, or wait for others.
        self.holds: dict[str, bytes] = {}
        self.waits: dict[str, Waiting] = {}
        #: What dead ids wait for again should they come back.
        self._dead_waits: dict[str, Waiting] = {}

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

    def wait(self, id: str, waiting: Waiting) -> None:
        """Keeps an id from being run until these are gone, too."""
        with self._lock:
            known = self.waits.setdefault(id, Waiting())
            known.names.update(waiting.names)
            known.done += waiting.done
            self._model_of(id).hold(self._layout, b"{}", id)

    def let_go(self, is_here: Callable[[str], bool]) -> None:
        """Has ids run of which nothing is left that they wait for."""
        for id, waiting in [*self.waits.items()]:
            for name in [name for name in waiting.names if not is_here(name)]:
                del waiting.names[name]
                waiting.done += 1
            if not waiting.names:
                del self.waits[id]
                self._free([id])

    def _free(self, ids: Iterable[str]) -> None:
        """Has ids run again that nobody holds, and that wait for nothing."""
        with self._lock:
            for id in ids:
                if id not in self.holds and id not in self.waits:
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
        now = self._clock.now
        with self._lock:
            found = [
                # What was queued with others a moment ahead of the clock is due with them.
                (now if now < entry.due <= model.state.last_score else entry.due, index)
                for index, model in enumerate(self._models)
                for entry in model.state.queued.values()
                if not (entry.waits or entry.blocked or model.state.paused)
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

    def cancelled(self, taken: Taken) -> set[str]:
        """The ids of a claim that somebody has cancelled."""
        with self.locked(taken.at) as model:
            return {id for name, id in model.state.cancelled if name == taken.number}

    def checkpoint(self, taken: Taken, id: str, value: bytes) -> bool:
        """Keeps what a job is given back when it is run again. False: its run is over."""
        with self._lock:
            return self._models[taken.at].checkpoint(NODE, taken.epoch, taken.number, id, value)

    def _acquire(self, model: ShardModel) -> int:
        model.now = self._clock.now
        owned = model.acquire(NODE, self._layout, FOR_EVER, 1, {}, is_foster=False, bell="")
        assert isinstance(owned, Owned)  # noqa: S101 (nobody else owns it)
        return int(owned.epoch)

    # ── what people do, and see ─────────────────────────────────────────────────────────────────────────────────────

    def act(self, index: int, script: str, words: Sequence[bytes], ids: Sequence[str]) -> Any:
        """Does what a script does to ids of a shard, or to all of it. Returns its reply."""
        with self.locked(index) as model:
            match script:
                case "pause":
                    since, _ = model.pause(self._layout, words[0])
                    model.state.rests = model.state.epoch  # whatever runs has begun
                    return [since, b""]
                case "resume":
                    return model.resume(self._layout)
                case "hold":
                    new = len(set(ids) - self.holds.keys())
                    self.holds.update(dict.fromkeys(ids, words[0]))
                    model.hold(self._layout, words[0], *ids)
                    return new
                case "let_go" | "stop_waiting":
                    where: dict[str, Any] = self.holds if script == "let_go" else self.waits
                    gone = [id for id in ids if where.pop(id, None) is not None]
                    self._free(gone)
                    return len(gone)
            given = [int(word) if word.isdigit() else word.decode() for word in words]
            replies = [as_list(getattr(model, script)(self._layout, *given, id)) for id in ids]
            for id, (moved, *left) in zip(ids, replies, strict=True):
                if moved or left:
                    self._has_moved(model, script, id)
            return [sum(moved for moved, *_ in replies), *(id for _, *left in replies for id in left)]

    def _has_moved(self, model: ShardModel, script: str, id: str) -> None:
        """What an id waits for goes with it to the morgue, and back."""
        if id in self.waits and id not in model.state.queued:
            waiting = self.waits.pop(id)
            self._free([id])
            if script == "bury":
                self._dead_waits[id] = waiting
        elif id in self._dead_waits and id not in model.state.morgue:
            waiting = self._dead_waits.pop(id)
            if script == "revive":
                self.wait(id, waiting)

    @contextmanager
    def locked(self, index: int) -> Iterator[ShardModel]:
        """The model of a shard, which nobody else changes meanwhile."""
        with self._lock:
            model = self._models[index]
            model.now = self._clock.now
            yield model

    def pushed(self) -> list[tuple[EncodedJob, Push]]:
        """Pushes, the first first, each as it was sent and as perform is given it."""
        return [(job, _push(job, at, self._load(job.payload))) for job, at in self._pushed]

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
        pairs = [part for payload, score in payloads for part in (payload, text_of(score))]
        found += (name, [b"%b:%d" % (text_of(due), retry_count), *pairs])
        if id in model.state.checkpoints:
            payload, value = model.state.checkpoints[id]
            known = name_of(payload)
            checkpoints += (name, b"%d:%b%b" % (len(known), known, value))
        if tags:
            tagged += (name, "\n".join(tags).encode())
    return [text_of(model.now), b"", found, 0, [], checkpoints, tagged]


def text_of(microseconds: int) -> bytes:
    """A time, or a score, as Redis tells it."""
    return repr(microseconds / SECOND).encode()


def _push(job: EncodedJob, at: int, payload: Any) -> Push:
    is_delay = job.perform_in.startswith("+")
    return Push(
        id=job.id.decode("utf-8", KEPT_BYTES),
        payload=payload,
        score=None if job.score == "" else float(job.score),
        at=float(job.perform_in) if job.perform_in and not is_delay else None,
        delay=float(job.perform_in) if is_delay else None,
        tags=parse_tags(job.tags.encode()),
        pushed_at=at / SECOND,
    )
