"""Commits: what is done once a session's transaction has committed, and not if it, or its savepoint, rolls back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from lowkiq.app import listed
from lowkiq.errors import LowkiqError, SettingsError, short
from lowkiq.job import NewJob
from lowkiq.outbox.putting import Waiting, push_together
from lowkiq.queue.call import grouped
from lowkiq.types.variables import P
from lowkiq.worker import Target, Worker, worker_of

#: Sessions that are worked with by calls, and those whose calls are awaited.
PlainSession: TypeAlias = Session | scoped_session[Any]
AwaitedSession: TypeAlias = AsyncSession | async_scoped_session[Any]
#: Key of what waits for the commit, in a session's `info`.
_KEY = "lowkiq"


def push_on_commit(
    session: PlainSession | AwaitedSession,
    worker: Target[P],
    jobs: Iterable[NewJob[P]],
    /,
    *,
    robust: bool = False,
) -> None:
    """
    Pushes jobs right after the session's transaction has committed; not if it rolls back, nor if the savepoint does
    that is open now. What can't be pushed then, or is to be pushed when the process dies, is lost: see `Outbox`. All of
    a transaction is pushed together; the log has what could not be, as `not_pushed`, with its ids.

    Args:
        worker: whose jobs they are; or a task of lowkiq.celery, whose jobs `task.job` makes.
        robust: what can't be pushed is told by the log alone, and raises nothing.

    Raises:
        InvalidJob: at once; it names the job and the field.
        PushFailed: of `session.commit()`, when the transaction has committed already.
    """
    batch, known = listed(jobs), worker_of(worker)
    ids = [job.id.decode() for job in known.registered_app().validated(known, batch)]
    on_commit(plain(session), _Push(known, batch, ids, is_awaited=is_awaited(session), robust=robust))


@dataclass(frozen=True, eq=False)
class _Push:
    """A push that waits."""

    worker: type[Worker[Any]]
    jobs: list[NewJob]
    ids: list[str]
    is_awaited: bool
    robust: bool

    def __call__(self) -> None:
        app = self.worker.registered_app()
        if self.is_awaited:
            # SQLAlchemy calls back within its greenlet, where what is to be awaited has to be handed to it.
            await_only(app.apush(self.worker, self.jobs))
        else:
            app.push(self.worker, self.jobs)


def is_awaited(session: object) -> TypeGuard[AwaitedSession]:
    """True of a session whose calls are awaited."""
    return isinstance(session, AsyncSession | async_scoped_session)


def plain(session: Any) -> Session:
    """The session that is behind another kind of it."""
    if isinstance(session, scoped_session | async_scoped_session):
        session = session()
    if isinstance(session, AsyncSession):
        session = session.sync_session
    if not isinstance(session, Session):
        raise SettingsError(f"{short(session)} is no session of SQLAlchemy")
    return session


def on_commit(session: Session, call: Callable[[], object], *, first: bool = False) -> None:
    """Calls it once what the session does now is committed; with `first`, before what may fail."""
    waiting = session.info.get(_KEY)
    if waiting is None:
        waiting = session.info[_KEY] = _Waiting(session)
    waiting.add(session, call, first=first)


class _Waiting:
    """Calls that wait for the commit of a session's transaction."""

    def __init__(self, session: Session) -> None:
        #: With the transaction, or savepoint, that each was made in.
        self._calls: list[tuple[SessionTransaction | None, Callable[[], object]]] = []
        self._committed: SessionTransaction | None = None
        event.listen(session, "after_commit", self._note)
        event.listen(session, "after_transaction_end", self._end)

    def add(self, session: Session, call: Callable[[], object], *, first: bool) -> None:
        self._calls.insert(0 if first else len(self._calls), (_innermost(session), call))

    def _note(self, session: Session) -> None:
        self._committed = _innermost(session)

    def _end(self, _: Session, ended: SessionTransaction) -> None:
        """Calls of a savepoint that was released are the outer transaction's then; a flush has none of its own."""
        is_committed, is_outermost = ended is self._committed, ended.parent is None
        mine = [(at, call) for at, call in self._calls if at is ended or (is_outermost and at is None)]
        if not mine:
            return
        self._calls = [one for one in self._calls if one not in mine]
        if is_committed and not is_outermost:
            self._calls += [(ended.parent, call) for _, call in mine]
        elif is_committed:
            self._committed = None
            _call_all([call for _, call in mine])


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _call_all(calls: list[Callable[[], object]]) -> None:
    pushes = [call for call in calls if isinstance(call, _Push)]
    for call in calls:
        if call not in pushes:
            call()
    with contextlib.suppress(LowkiqError):
        _push_all([push for push in pushes if push.robust])
    _push_all([push for push in pushes if not push.robust])


def _push_all(pushes: Sequence[_Push]) -> None:
    """Pushes together what is of one queue. Raises LowkiqError, once all was tried."""
    by_worker = grouped((push.worker, push) for push in pushes)
    if pushes:
        app: Any = pushes[0].worker.registered_app()
        push_together([_merged(some) for some in by_worker.values()], app.settings.push_timeout)


def _merged(pushes: Sequence[_Push]) -> Waiting:
    """One push in place of several to a queue."""
    push = replace(pushes[0], jobs=[job for one in pushes for job in one.jobs])
    return Waiting(push.worker.queue_name, [id for one in pushes for id in one.ids], push)
