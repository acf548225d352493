"""Backend: the app's queues as the web view reaches them. It waits less than a producer would; every method blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from lowkiq.admin.jobs.actions import Progress
from lowkiq.admin.jobs.bulks import Bulk
from lowkiq.admin.jobs.finder import Finder, FoundJob
from lowkiq.admin.jobs.holding import read_circle, read_holds_of
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.search import Search
from lowkiq.admin.jobs.tags import TagCount, TenantBacklog, largest_backlogs, top_tags
from lowkiq.admin.jobs.tracking import Tracked, Transition, is_tracked, read_tracked, read_transitions
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.admin.metrics import read_layouts
from lowkiq.admin.pauses import Hold, pause_text
from lowkiq.admin.recurring import Action, RecurringJob, act, read_entry, read_soonest
from lowkiq.admin.sessions import end_session, read_ended_sessions
from lowkiq.admin.why.reading import Around, Reader
from lowkiq.admin.why.reasons import Reason
from lowkiq.app import Lowkiq
from lowkiq.errors import LowkiqError, unknown_queue
from lowkiq.job import KEPT_BYTES, encode_id
from lowkiq.queue.call import Caller
from lowkiq.queue.homes import home_of
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.recurrence import Every, Rule
from lowkiq.transport.connect import client_for_people
from lowkiq.web.security.access import SESSION_SECONDS
from lowkiq.worker import Worker

#: What people ask of a job that recurs.
RecurringAction = Action | Literal["run_now"]
#: Tracked ids that a page shows.
PINNED: Final = 50


class Backend:
    """The queues of an app, for the rooms of the web view. The state of the whole comes from snapshots instead."""

    def __init__(self, app: Lowkiq) -> None:
        self.settings = app.settings
        self.namespace = app.settings.namespace
        self.caller = Caller(client_for_people(app.settings))
        self.thresholds = app.thresholds
        self._app = app

    def layouts(self) -> dict[str, int | Layout]:
        """Every queue, those of this app and those that Redis knows, each as Redis knows it, as far as it does."""
        ours = {name: worker.shards_count for name, worker in self._app.workers.items()}
        return {**ours, **read_layouts(self.caller, self.namespace)}

    def previews(self, queue: str) -> Previews:
        """Raises UnknownQueue."""
        settings = self.settings
        return Previews(
            self.caller, self._shards(queue), load_error=settings.load_error, max_id_bytes=settings.max_id_bytes
        )

    def finder(self) -> Finder:
        """Finds jobs by their ids, over all queues."""
        settings = self.settings
        return Finder(
            self.caller,
            settings.namespace,
            self.layouts(),
            load_error=settings.load_error,
            max_id_bytes=settings.max_id_bytes,
        )

    def actions(self, queue: str) -> UndoableActions:
        """Raises UnknownQueue."""
        return UndoableActions(self.caller, self._shards(queue), max_id_bytes=self.settings.max_id_bytes)

    def tags(self, queue: str, limit: int) -> list[TagCount]:
        """The tags that most ids of a queue have. Raises UnknownQueue."""
        return top_tags(self.caller, self._shards(queue), limit)

    def tenants(self, queue: str, limit: int) -> list[TenantBacklog]:
        """The tenants with the largest backlogs of a queue. Raises UnknownQueue."""
        return largest_backlogs(self.caller, self._shards(queue), limit)

    def tracked(self) -> list[Tracked]:
        """The tracked ids of all queues."""
        shown: list[Tracked] = []
        for queue, layout in self.layouts().items():
            shards = shards_of(self.namespace, {queue: layout})
            shown += read_tracked(self.caller, shards, PINNED - len(shown))
        return shown

    def history(self, queue: str, id: str) -> tuple[bool, list[Transition]]:
        """True if an id is tracked, and what has happened to it since."""
        shards = self._shards(queue)
        encoded = encode_id(id, self.settings.max_id_bytes, errors=KEPT_BYTES)
        shard = home_of(self.caller, shards, encoded, ["tracks"])
        return is_tracked(self.caller, shard, encoded), read_transitions(self.caller, shard, encoded)

    def hold_of(self, queue: str, id: str) -> Hold | None:
        """Who holds an id; None: nobody does. Raises ValueError for what can't be an id."""
        shards = self._shards(queue)
        encoded = encode_id(id, self.settings.max_id_bytes, errors=KEPT_BYTES)
        (hold,) = read_holds_of(self.caller, [(home_of(self.caller, shards, encoded, ["held"]), encoded)])
        if hold is None or hold.waits is None:
            return hold
        waits = msgspec.structs.replace(hold.waits, circle=read_circle(self.caller, self._shards, queue, hold))
        return msgspec.structs.replace(hold, waits=waits)

    def reasons(self, around: Around, jobs: Sequence[FoundJob]) -> list[Reason]:
        """Why each of these jobs does not run."""
        # Of a queue that is new the snapshot need not know.
        around = around._replace(layouts={**around.layouts, **self.layouts()})
        return Reader(self.caller, self.namespace, around, self._app.workers).reasons(jobs)

    def recurring(self, queue: str | None, limit: int) -> tuple[list[RecurringJob], int]:
        """The jobs that recur, of one queue or all, as `read_soonest` has them. Raises UnknownQueue."""
        layouts = self.layouts()
        shards = self._shards(queue) if queue else shards_of(self.namespace, layouts)
        return read_soonest(self.caller, shards, limit)

    def act_on_recurring(self, queue: str, id: str, action: RecurringAction, who: str, why: str = "") -> bool:
        """
        Does what somebody asks of a job that recurs.

        Returns:
            False: there is none of that id, or nothing to change.

        Raises:
            UnknownQueue, LowkiqError, ValueError: of the id.
        """
        shards, encoded = self._shards(queue), encode_id(id, self.settings.max_id_bytes, errors=KEPT_BYTES)
        if action != "run_now":
            return act(self.caller, shards, encoded, action, who, why)
        self._app.recurring.run_encoded(self._worker(queue, "run one now"), encoded, who)
        return True

    def set_recurring(self, queue: str, id: str, every: Every, *, who: str, **options: Any) -> bool:
        """
        Has a job recur, or changes one that does; `options` are those of `app.recurring.set`. False: it is so already.

        Raises:
            UnknownQueue, and those of `app.recurring.set`.
        """
        self._shards(queue)
        return self._app.recurring.set(self._worker(queue, "set one"), id, every, who=who, **options)

    def rule_of(self, queue: str, id: str) -> Rule | None:
        """How a job recurs; None: it does not. Raises UnknownQueue, LowkiqError, ValueError."""
        shards, encoded = self._shards(queue), encode_id(id, self.settings.max_id_bytes, errors=KEPT_BYTES)
        _, entry = read_entry(self.caller, home_of(self.caller, shards, encoded, ["recurring"]), encoded)
        return entry.rule if entry else None

    def _worker(self, queue: str, what: str) -> type[Worker[Any]]:
        if queue not in self._app.workers:
            raise LowkiqError(f"this view has no worker of {queue}, which it takes to {what}: start it with -r")
        return self._app.workers[queue]

    def sweep(self, bulk: Bulk, who: str = "") -> Iterator[Progress]:
        """Does what a bulk is to do, step by step."""
        search = Search(self.caller, self._shards(bulk.queue), self.settings.load_error)
        return self.actions(bulk.queue).sweep(search, bulk.action, bulk.match, bulk.total, pause_text(who, bulk.why))

    def ended_sessions(self) -> set[str]:
        """Sessions of web views that somebody has signed out of, in whichever process."""
        return read_ended_sessions(self.caller, self.namespace)

    def end_session(self, nonce: str) -> None:
        """Tells all processes that a session is over."""
        end_session(self.caller, self.namespace, nonce, SESSION_SECONDS)

    def _shards(self, queue: str) -> list[Shard]:
        layouts = self.layouts()
        if queue not in layouts:
            raise unknown_queue(queue, layouts)
        return shards_of(self.namespace, {queue: layouts[queue]})
