"""The outbox in sessions that are awaited."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import MetaData, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

from lowkiq import InvalidJob, SettingsError
from lowkiq.sqlalchemy import Outbox


@pytest.fixture
def run(app, database):
    """run(test): awaits a test of (outbox, engine, sync) on a database."""

    def run(test, **settings):
        async def main():
            metadata = MetaData()
            outbox = Outbox(app, metadata)
            sync = app.worker(queue_name="sync")(lambda batch: None)
            engine = create_async_engine(database.replace("sqlite:", "sqlite+aiosqlite:"))
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
            await test(outbox, engine, sync)
            await engine.dispose()
            await app.aclose()

        asyncio.run(main())

    return run


async def left(outbox, engine):
    async with engine.connect() as connection:
        return [row.job_id for row in await connection.execute(select(outbox.table))]


async def until_none_is_left(outbox, engine):
    async with asyncio.timeout(60):
        while await left(outbox, engine):
            await asyncio.sleep(0.01)


def test_what_commits_is_pushed_and_what_rolls_back_is_not(run):
    async def test(outbox, engine, sync):
        async with AsyncSession(engine) as session:
            await outbox.apush(session, sync, [{"id": 1, "payload": "a"}, {"id": 1, "payload": "b"}])
            await session.commit()
            await outbox.apush(session, sync, [{"id": 2}])
            await session.rollback()
        relay = outbox.relay(engine)
        assert await relay.run_once() == 2
        assert await relay.run_once() == 0
        assert [job.payloads for job in sync.queries.fetch([1, 2])] == [["a", "b"]]

    run(test)


def test_a_scoped_session_will_do(run):
    async def test(outbox, engine, sync):
        session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await outbox.apush(session, sync, [{"id": 1}])
        await session.commit()
        await session.remove()
        assert await left(outbox, engine) == ["1"]

    run(test)


def test_each_session_has_its_call(run):
    async def test(outbox, engine, sync):
        async with AsyncSession(engine) as session:
            with pytest.raises(SettingsError, match=r"await outbox\.apush"):
                outbox.push(session, sync, [{"id": 1}])
            with pytest.raises(SettingsError, match="is not awaited"):
                await outbox.apush(session.sync_session, sync, [{"id": 1}])
            with pytest.raises(InvalidJob):
                await outbox.apush(session, sync, [{"id": ""}])

    run(test)


def test_a_commit_wakes_the_relay_and_only_one_sends(run):
    async def test(outbox, engine, sync):
        async with outbox.relay(engine, every=600), outbox.relay(engine, every=0.05):
            for n in range(3):
                async with AsyncSession(engine) as session, session.begin():
                    await outbox.apush(session, sync, [{"id": n}])
                await until_none_is_left(outbox, engine)

    run(test)


def test_a_row_that_cannot_be_pushed_keeps_its_error(run):
    async def test(outbox, engine, sync):
        async with AsyncSession(engine) as session, session.begin():
            await outbox.apush(session, sync, [{"id": 1}])
        del outbox.app.workers["sync"]
        assert await outbox.relay(engine).run_once() == 1
        async with engine.connect() as connection:
            (row,) = await connection.execute(select(outbox.table))
        assert "no queue 'sync' here" in row.error

    run(test)


def test_middlewares_of_both_kinds_are_around_it(make_app, database):
    seen = []

    async def awaited(worker, batch, call):
        seen.append(await call())

    def plain(worker, batch, call):
        seen.append("plain")
        return call()

    async def main():
        app = make_app(client_middlewares=[awaited, plain])
        metadata = MetaData()
        outbox = Outbox(app, metadata)
        sync = app.worker(queue_name="sync")(lambda batch: None)
        engine = create_async_engine(database.replace("sqlite:", "sqlite+aiosqlite:"))
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        async with AsyncSession(engine) as session, session.begin():
            await outbox.apush(session, sync, [{"id": 1}])
        assert await left(outbox, engine) == ["1"]
        await engine.dispose()

    asyncio.run(main())
    assert seen == ["plain", (0, 0)]


def test_a_cancelled_relay_ends_its_push_before_another_may_begin(run, monkeypatch):
    """Else the other's rows could overtake it."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def test(outbox, engine, sync):
        async with AsyncSession(engine) as session, session.begin():
            await outbox.apush(session, sync, [{"id": 1}])
        loop, push = asyncio.get_running_loop(), outbox.app.push_validated

        def slow(queue, jobs):
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
            return push(queue, jobs)

        monkeypatch.setattr(outbox.app, "push_validated", slow)
        first = asyncio.create_task(outbox.relay(engine).run_once())
        await began.wait()
        first.cancel()
        monkeypatch.undo()
        for _ in range(3):
            assert await outbox.relay(engine).run_once() is None
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await outbox.relay(engine).run_once() == 1

    run(test)
