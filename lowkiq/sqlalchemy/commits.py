"""Commits: what is done once a session's transaction has committed, and not if it, or its savepoint, rolls back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeGuard

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from lowkiq.app import listed
from lowkiq.errors import LowkiqError, SettingsError, short
from lowkiq.job import NewJob
from lowkiq.types.variables import P
from lowkiq.worker import Worker

#: Sessions that are worked with by calls, and those whose calls are awaited.
PlainSession: TypeAlias = Session | scoped_session[Any]
AwaitedSession: TypeAlias = AsyncSession | async_scoped_session[Any]
#: Key of what waits for the commit, in a session's `info`.
_KEY = "lowkiq"


def push_on_commit(
    session: PlainSession | AwaitedSession, worker: type[Worker[P]], jobs: Iterable[NewJob[P]], /
) -> None:
    """
    Pushes jobs right after the session's transaction has committed; not if it rolls back, nor if the savepoint does
    that is open now. What can't be pushed then, or is to be pushed when the process dies, is lost: see `Outbox`.

    Raises:
        InvalidJob: at once; it names the job and the field.
        PushFailed: of `session.commit()`, when the transaction has committed already.
    """
    app: Any = worker.registered_app()
    batch = listed(jobs)
    app.validated(worker, batch)
    if is_awaited(session):
        # SQLAlchemy calls back within its greenlet, where what is to be awaited has to be handed to it.
        on_commit(plain(session), lambda: await_only(app.apush(worker, batch)))
    else:
        on_commit(plain(session), partial(app.push, worker, batch))


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
    for number, call in enumerate(calls, 1):
        try:
            call()
        except LowkiqError as error:
            if left := len(calls) - number:
                error.add_note(f"pushes that waited for this commit and were not tried: {left}")
            raise
