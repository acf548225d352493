"""Scenario of what people do: tags, deletions and their undo, the morgue, tracking, alerts and incidents."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lowkiq import Lowkiq, Worker
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.alerts.noted import Notes
from lowkiq.admin.jobs.undo import KEPT_SECONDS, UndoableActions
from lowkiq.admin.past.incidents import NewIncident, end, note, read_incidents
from lowkiq.queue.shard import Exhausted, Outcome, Owned
from tests.faults.failpoints.scenario import FIRST, Scenario

#: Ids that are deleted, of both shards: with several payloads and one, with tags and without; one of them is tracked.
DELETED, TRACKED = ["several", *(f"short {n}" for n in range(2, 8))], "several"
#: Ids that are buried, deleted there, and come back.
BURIED = ["short 8", "short 9", "short 10"]
#: Ids that are blocked before anybody comes.
BLOCKED = ["short 1", "short 11"]
#: The id of a job that recurs.
RECURS = "recurs"
ALERT = Alert(kind="late queue", severity="bad", subject="jobs", says="Queue jobs is late", do="Start nodes")
INCIDENT = NewIncident(key="roll", kind="deploy", severity="note", says="Version 2 is rolled out", lasts=True)


class People:
    """An operator, whose process is struck, and another who looks what has become of it and goes on."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def run(self) -> int:
        """Does everything, and leaves a deletion that is not undone yet."""
        app, jobs = self._scenario.with_worker(self._scenario.watched())
        self._push(jobs)
        jobs.actions.track([TRACKED])
        actions = self._actions(app)
        self._delete_and_put_back(actions, "due", DELETED)
        actions.act("bury", "due", BURIED)
        actions.behind_newer(BURIED)
        self._delete_and_put_back(actions, "morgue", BURIED)
        self._delete(actions, "due", DELETED)
        self._block()
        self._delete_and_put_back(actions, "blocked", BLOCKED)
        actions.retry(BLOCKED)
        self._note(app)
        jobs.actions.pause("stock-taking")
        jobs.actions.resume()
        jobs.actions.hold(BURIED, "a customer called")
        jobs.actions.release(BURIED)
        app.recurring.set(jobs, RECURS, "1d")
        app.recurring.pause(jobs, RECURS)
        app.recurring.resume(jobs, RECURS)
        app.recurring.remove(jobs, RECURS)
        return 0

    def go_on(self) -> Iterator[str]:
        """Looks at once after the strike, undoes what can be undone, does again what may not have been done."""
        app, jobs = self._scenario.plain()
        yield from self.tags_wrong()
        yield from self._undo_all(self._actions(app))
        if self._has_pushed():
            yield from self._missing(jobs)
        else:
            self._push(jobs)
        jobs.actions.track([TRACKED])
        jobs.actions.morgue_queue_up(BURIED)
        jobs.actions.retry_all()
        self._note(app)
        if not jobs.actions.pause("once more").is_confirmed or jobs.actions.resume() != 2:
            yield "a queue without nodes was not paused and resumed"
        held = {hold.id for hold in jobs.queries.held()}
        if jobs.actions.release(BURIED) != len(held) or held - {*BURIED}:
            yield f"held: {held}"
        app.recurring.set(jobs, RECURS, "1d")
        app.recurring.pause(jobs, RECURS)
        if [(job.id, job.next_at) for job in app.recurring] != [(RECURS, None)]:
            yield f"recurring: {[*app.recurring]}"
        if not (app.recurring.resume(jobs, RECURS) and app.recurring.remove(jobs, RECURS)) or [*app.recurring]:
            yield "what recurred was not resumed and removed"
        told = Counter(incident.kind for incident in read_incidents(app.caller, app.settings.namespace))
        deeds = Counter({"pause": 2, "resume": 2, "hold": 2, "release": 3, "undo": 12, "recurring": 8})
        if told - deeds != {ALERT.kind: 1, "deploy": 1}:
            yield f"incidents: {dict(told)}"

    def look_back(self) -> Iterator[str]:
        """Looks what was kept of the tracked id, once all is done."""
        _, jobs = self._scenario.plain()
        (tracked,) = jobs.queries.tracked()
        kinds = " ".join(transition.kind for transition in tracked.transitions)
        if tracked.count != len(tracked.transitions) or not re.fullmatch(
            "(deleted pushed )*(started released )*started done", kinds
        ):
            yield f"tracked: {tracked.count}: {kinds}"
        jobs.actions.untrack([TRACKED])

    def tags_wrong(self) -> Iterator[str]:
        """Compares what is counted of tags with what jobs have; nothing may be in hand."""
        client, (app, jobs) = self._scenario.connect(), self._scenario.plain()
        found = itertools.chain(jobs.queries.find("*"), jobs.queries.morgue_find("*"))
        true = Counter(tag for tag, _ in {(tag, job.id) for job in found for tag in job.tags})
        kept: Counter[str] = Counter()
        for shard in app.shards("jobs", 2):
            rows: Any = client.zrange(f"{shard.prefix}tag_counts", 0, -1, withscores=True)
            kept.update({tag.decode(): round(count) for tag, count in rows})
        told = {row.tag: row.ids for row in jobs.queries.top(100)}
        if not kept == told == true:
            yield f"tags are counted as {dict(kept)}, told as {told}, and are {dict(true)}"

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _push(self, jobs: type[Worker]) -> None:
        jobs.perform_async(FIRST)
        self._scenario.connect().set(f"{self._scenario.own}:pushed", 1)

    def _block(self) -> None:
        """Runs as a node would that these jobs have failed on, and leaves all others as they were."""
        app, _ = self._scenario.plain()
        for shard in app.shards("jobs", 2):
            owned = app.caller.run(shard.acquire("people", 60, 3))
            assert isinstance(owned, Owned)
            claim = app.caller.run(shard.claim("people", owned.epoch, 1, 100, 100, bytes))
            bad = [Exhausted(job.id, "is to be blocked", "block") for job in claim.jobs if job.id in BLOCKED]
            app.caller.run(shard.settle("people", owned.epoch, 1, Outcome(exhausted=bad, rest="release")))
            app.caller.run(shard.release("people", owned.epoch, 1, "lease"))

    def _has_pushed(self) -> bool:
        return bool(self._scenario.connect().exists(f"{self._scenario.own}:pushed"))

    @staticmethod
    def _actions(app: Lowkiq) -> UndoableActions:
        return UndoableActions(app.caller, app.shards("jobs", 2), max_id_bytes=app.settings.max_id_bytes)

    @staticmethod
    def _delete(actions: UndoableActions, view: str, ids: list[str]) -> str:
        """Deletes all of these, however often Redis was asked to."""
        deleted = actions.delete_and_keep(view, ids)
        assert deleted.moved == len(ids), f"of {len(ids)} in {view}, {deleted.moved} are said to be deleted"
        assert deleted.undo, "nobody is told how to undo that"
        return deleted.undo

    def _delete_and_put_back(self, actions: UndoableActions, view: str, ids: list[str]) -> None:
        actions.undo(self._delete(actions, view, ids))

    @staticmethod
    def _note(app: Lowkiq) -> None:
        caller, namespace = app.caller, app.settings.namespace
        Notes(caller, namespace)([ALERT], [ALERT])
        note(caller, namespace, [INCIDENT])
        end(caller, namespace, {INCIDENT.key: None})

    # ── what must hold ──────────────────────────────────────────────────────────────────────────────────────────────

    def _undo_all(self, actions: UndoableActions) -> Iterator[str]:
        """Undoes all deletions of which something is kept: each comes back once."""
        client = self._scenario.connect()
        kept = list(client.scan_iter(f"{self._scenario.namespace}:*:undo:*", count=1000))
        yield from (f"{key!r} has no end" for key in kept if not 0 < client.ttl(key) <= KEPT_SECONDS)
        for name in {key.decode().partition(":undo:")[2][:16] for key in kept}:
            actions.undo(name)
            if again := actions.undo(name):
                yield f"{again} ids came back a second time"

    @staticmethod
    def _missing(jobs: type[Worker]) -> Iterator[str]:
        """Whatever was pushed is queued, or in the morgue, with its payloads and tags."""
        expected: dict[str, tuple[int, tuple[str, ...]]] = {}
        for job in FIRST:
            id = str(job["id"])
            if "keep" in job:
                expected.pop(id, None)
            expected[id] = (expected.get(id, (0, ()))[0] + 1, tuple(job.get("tags", ())))
        found = [*jobs.queries.find("*"), *jobs.queries.morgue_find("*")]
        there = {job.id: (job.payload_count, job.tags) for job in found}
        if there != expected or len(found) != len(there):
            yield f"there are {sorted(there.items() ^ expected.items())}, {len(found)} in all"
