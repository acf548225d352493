"""`push_on_commit` pushes after the commit of what it was called in, and after nothing else."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from structlog.testing import capture_logs

from lowkiq import InvalidJob, PushFailed, SettingsError
from lowkiq.sqlalchemy import push_on_commit


def queued(shop):
    return {job.id for job in shop.sync.queries.fetch(list("abcdef"))}


def test_it_pushes_after_the_commit_and_once(shop):
    with shop.session() as session:
        push_on_commit(session, shop.sync, [{"id": "a"}])
        session.execute(text("SELECT 1"))
        assert queued(shop) == set()
        session.commit()
        assert queued(shop) == {"a"}
        shop.sync.actions.delete(["a"])
        session.execute(text("SELECT 1"))
        session.commit()
    assert queued(shop) == set()


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_not_after_what_else_ends_a_transaction(shop, end):
    with shop.session() as session:
        session.execute(text("SELECT 1"))
        push_on_commit(session, shop.sync, [{"id": "a"}])
        getattr(session, end)()
        session.execute(text("SELECT 1"))
        push_on_commit(session, shop.sync, [{"id": "b"}])
        session.commit()
    assert queued(shop) == {"b"}


def test_of_savepoints_those_that_were_released(shop):
    with shop.session() as session:
        with session.begin_nested():
            push_on_commit(session, shop.sync, [{"id": "a"}])
            with session.begin_nested() as inner:
                push_on_commit(session, shop.sync, [{"id": "b"}])
                inner.rollback()
            with session.begin_nested():
                push_on_commit(session, shop.sync, [{"id": "c"}])
        with session.begin_nested() as outer:
            with session.begin_nested():
                push_on_commit(session, shop.sync, [{"id": "d"}])
            outer.rollback()
        push_on_commit(session, shop.sync, [{"id": "e"}])
        assert queued(shop) == set()
        session.commit()
    assert queued(shop) == {"a", "c", "e"}


def test_a_bad_job_is_refused_at_once(shop):
    with shop.session() as session, pytest.raises(InvalidJob):
        push_on_commit(session, shop.sync, [{"id": ""}])
    with pytest.raises(SettingsError, match="is no session"):
        push_on_commit(5, shop.sync, [{"id": "a"}])


def test_a_push_that_fails_is_told_by_commit_and_the_session_goes_on(shop, monkeypatch):
    def fail(worker, jobs):
        tried.append(jobs)
        raise PushFailed("Redis is away")

    tried = []
    with shop.session() as session:
        monkeypatch.setattr(shop.app, "push", fail)
        push_on_commit(session, shop.sync, [{"id": "a"}])
        push_on_commit(session, shop.sync, [{"id": "b"}])
        shop.outbox.push(session, shop.sync, [{"id": "c"}])
        with pytest.raises(PushFailed), capture_logs() as logs:
            session.commit()
        assert tried == [[{"id": "a"}, {"id": "b"}]]
        assert [(line["event"], line["queue"], line["ids"]) for line in logs] == [("not_pushed", "sync", ["a", "b"])]
        monkeypatch.undo()
        assert shop.ids() == ["c"]  # it has committed
        push_on_commit(session, shop.sync, [{"id": "d"}])
        session.commit()
    assert queued(shop) == {"d"}


def test_each_queue_is_tried_and_what_is_robust_raises_nothing(shop, monkeypatch):
    def fail(worker, jobs):
        tried.append((worker.queue_name, [job["id"] for job in jobs]))
        raise PushFailed(f"{worker.queue_name} is away")

    tried = []
    other = shop.app.worker(queue_name="other")(lambda _: None)
    monkeypatch.setattr(shop.app, "push", fail)
    with shop.session() as session:
        for id in ("a", "b"):
            push_on_commit(session, shop.sync, [{"id": id}], robust=True)
        session.commit()
        push_on_commit(session, shop.sync, [{"id": "c"}])
        push_on_commit(session, other, [{"id": "d"}])
        push_on_commit(session, other, [{"id": "e"}], robust=True)
        with pytest.raises(PushFailed, match="sync is away") as raised:
            session.commit()
    assert tried == [("sync", ["a", "b"]), ("other", ["e"]), ("sync", ["c"]), ("other", ["d"])]
    assert raised.value.__notes__ == ["nor was all pushed to queue other: other is away"]


def test_in_a_session_that_is_awaited(shop, database):
    async def main():
        engine = create_async_engine(database.replace("sqlite:", "sqlite+aiosqlite:"))
        async with AsyncSession(engine) as session:
            push_on_commit(session, shop.sync, [{"id": "a"}])
            await session.commit()
            push_on_commit(session, shop.sync, [{"id": "b"}])
            await session.rollback()
        await engine.dispose()
        await shop.app.aclose()

    asyncio.run(main())
    assert queued(shop) == {"a"}
