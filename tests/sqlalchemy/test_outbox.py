"""What is put into an outbox is pushed if, and only if, its transaction commits; in the order of its id."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import MetaData, create_engine, delete, event, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import lowkiq.celery
from lowkiq import InvalidJob, Lowkiq, Pushed, SettingsError
from lowkiq.outbox import FIRST_SCORE
from lowkiq.sqlalchemy import Outbox, push_on_commit
from tests.support import wait_until


def test_what_is_committed_is_pushed_and_its_row_deleted(shop):
    shop.put({"id": 17, "payload": {"n": 1}}, {"id": 17, "payload": {"n": 2}}, {"id": "b"})
    assert shop.queued(17) == []
    relay = shop.outbox.relay(shop.engine)
    assert relay.run_once() == 3
    assert relay.run_once() == 0
    assert shop.queued(17) == [{"n": 1}, {"n": 2}]
    assert shop.queued("b") == [""]
    assert shop.rows() == []


def test_what_rolls_back_is_not(shop):
    with shop.session() as session:
        shop.outbox.push(session, shop.sync, [{"id": 1}])
        session.rollback()
        shop.outbox.push(session, shop.sync, [{"id": 2}])
        with session.begin_nested() as savepoint:
            shop.outbox.push(session, shop.sync, [{"id": 3}])
            savepoint.rollback()
        session.commit()
    assert shop.ids() == ["2"]


def test_a_bad_job_is_refused_when_it_is_put_with_the_words_of_a_push_and_nothing_is_written(shop):
    jobs = [{"id": 1}, {"id": 2, "payload": float("nan")}]
    with pytest.raises(InvalidJob) as pushed:
        shop.sync.perform_async(jobs)
    with shop.session() as session, session.begin(), pytest.raises(InvalidJob) as put:
        shop.outbox.push(session, shop.sync, jobs)
    assert str(put.value) == str(pushed.value)
    assert shop.rows() == []


@pytest.mark.parametrize("jobs", [{"id": 1}, 5, "ab", None])
def test_what_is_no_list_of_jobs_is_refused(shop, jobs):
    with shop.session() as session, pytest.raises(InvalidJob, match="takes a list of jobs"):
        shop.outbox.push(session, shop.sync, jobs)


def test_a_generator_of_jobs_and_a_scoped_session_will_do_and_no_jobs_write_nothing(shop):
    session = scoped_session(sessionmaker(shop.engine))
    shop.outbox.push(session, shop.sync, ({"id": id} for id in (3, 1, 2)))
    shop.outbox.push(session, shop.sync, [])
    session.commit()
    session.remove()
    assert shop.ids() == ["3", "1", "2"]


def test_a_worker_of_another_application_is_refused(shop, make_app):
    other = make_app().worker(queue_name="other")(lambda batch: None)
    with shop.session() as session, pytest.raises(SettingsError, match="no worker of the application"):
        shop.outbox.push(session, other, [{"id": 1}])


def test_a_database_whose_locks_are_unknown_is_refused(shop):
    with pytest.raises(SettingsError, match="knows no lock of mysql"):
        shop.outbox.relay(type("Engine", (), {"dialect": type("Dialect", (), {"name": "mysql"})}))


def test_all_that_a_job_may_say_gets_there(shop):
    shop.put({"id": 17, "payload": "a", "score": 5, "perform_in": 4e9, "tags": ["eu"], "throttle": 3})
    shop.outbox.relay(shop.engine).run_once()
    (job,) = shop.sync.queries.fetch([17])
    assert (job.scores, job.perform_in, job.tags) == ((5.0,), 4e9, ("eu",))


@pytest.mark.parametrize("id", ["\0", "a\0b", "\u2400", "'; DROP TABLE x; --", "ä" * 100, "\n", "%s {0}"])
def test_any_id_and_payload_gets_there(shop, id):
    shop.put({"id": id, "payload": [id, "\0"]})
    shop.outbox.relay(shop.engine).run_once()
    assert shop.queued(id) == [[id, "\0"]]


def test_payloads_that_are_no_text_get_there(make_app, database):
    app = make_app(
        dump_payload=lambda payload: b"\xff\x00" + payload.encode(), load_payload=lambda data: data[2:].decode()
    )
    metadata = MetaData()
    outbox, engine = Outbox(app, metadata, name="binary"), create_engine(database)
    metadata.create_all(engine)
    sync = app.worker(queue_name="sync")(lambda batch: None)
    with Session(engine) as session, session.begin():
        outbox.push(session, sync, [{"id": 1, "payload": "a"}])
    outbox.relay(engine).run_once()
    engine.dispose()
    assert sync.queries.fetch([1])[0].payloads == ["a"]


def test_a_row_that_is_sent_again_merges_and_keeps_its_place(shop, monkeypatch):
    """Its score is by its row: after all that was pushed without an outbox, and in the order of rows."""
    shop.sync.perform_async([{"id": 17, "payload": "direct"}])
    shop.put({"id": 17, "payload": "a"}, {"id": 17, "payload": "b"})
    push = shop.app.push_validated
    monkeypatch.setattr(shop.app, "push_validated", lambda queue, jobs: push(queue, jobs) and 1 / 0)
    relay = shop.outbox.relay(shop.engine)
    with pytest.raises(ZeroDivisionError):
        relay.run_once()
    monkeypatch.undo()
    assert len(shop.rows()) == 2
    relay.run_once()
    assert shop.queued(17) == ["direct", "a", "b"]
    first, second = shop.sync.queries.fetch([17])[0].scores[1:]
    assert FIRST_SCORE < first < second


def test_ids_of_rows_are_never_given_twice(shop):
    """Else a later row could come before an earlier one that is sent again."""
    shop.put({"id": 1})
    (row,) = shop.rows()
    shop.outbox.relay(shop.engine).run_once()
    shop.put({"id": 1})
    assert shop.rows()[0].id > row.id


def test_only_one_relay_sends_at_a_time_and_its_end_lets_another(shop):
    shop.put({"id": 1})
    first, second = shop.outbox.relay(shop.engine), shop.outbox.relay(shop.engine)
    with first.store.turn() as turn:
        assert turn is not None
        assert second.run_once() is None
        shop.put({"id": 2})  # who writes does not wait for it
    assert second.run_once() == 2


def test_a_row_that_commits_late_is_seen_though_higher_ones_were_sent(shop):
    """The trap of a cursor: PostgreSQL gives ids out before commits. What was sent is deleted, and no place is kept."""
    if shop.engine.dialect.name == "sqlite":
        pytest.skip("its writers come one after the other")
    relay = shop.outbox.relay(shop.engine)
    with shop.session() as late, late.begin():
        shop.outbox.push(late, shop.sync, [{"id": "late"}])
        shop.put({"id": "early"})
        assert relay.run_once() == 1
    assert relay.run_once() == 1
    assert shop.queued("late") == [""]


def test_transactions_that_push_to_one_id_come_one_after_the_other(shop):
    if shop.engine.dialect.name == "sqlite":
        pytest.skip("its writers do anyway")
    with shop.session() as first, first.begin():
        shop.outbox.push(first, shop.sync, [{"id": 17, "payload": 1}])
        other = threading.Thread(target=shop.put, args=({"id": 17, "payload": 2},))
        other.start()
        waits = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        with shop.engine.connect() as connection:
            wait_until(lambda: connection.scalar(waits))
    other.join()
    shop.outbox.relay(shop.engine).run_once()
    assert shop.queued(17) == [1, 2]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_what_a_session_holds_is_flushed_before_a_job_gets_its_place(shop):
    """So the change has locked its row by then, and jobs of one order are in the order of its changes."""
    Base.metadata.create_all(shop.engine)
    statements = []
    event.listen(shop.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    with Session(shop.engine, autoflush=False) as session, session.begin():
        session.add(Order(id=17))
        shop.outbox.push(session, shop.sync, [{"id": 17}])
    tables = [words[2] for statement in statements if (words := statement.split())[:2] == ["INSERT", "INTO"]]
    assert tables == ["orders", "lowkiq_outbox"]


def test_a_push_of_more_ids_than_there_are_locks_is_taken(shop):
    shop.put(*({"id": id, "payload": id} for id in range(3_000)))
    relay = shop.outbox.relay(shop.engine)
    while relay.run_once():
        pass
    assert shop.app.metrics()["sync"].length == 3_000


class TestPoison:
    """A row that can't be pushed keeps its error and later rows of its id back, and nothing else."""

    def test_of_an_unknown_worker(self, shop, capsys):
        shop.put({"id": 1, "payload": "a"}, {"id": 1, "payload": "b"}, {"id": 2})
        worker = shop.app.workers.pop("sync")
        relay = shop.outbox.relay(shop.engine)
        assert relay.run_once() == 2
        first, second, other = shop.rows()
        assert "no queue 'sync' here" in first.error
        assert (first.tries, second.tries, other.tries) == (1, 0, 1)
        assert "outbox_row_refused" in capsys.readouterr().out
        assert relay.run_once() == 0  # not before its time
        shop.app.workers["sync"] = worker
        self.due(shop)
        assert relay.run_once() == 3
        assert shop.queued(1) == ["a", "b"]
        assert shop.rows() == []

    def test_that_holds_no_job(self, shop):
        shop.put({"id": 1, "payload": "a"}, {"id": 1, "payload": "b"}, {"id": 2})
        table = shop.outbox.table
        with shop.engine.begin() as connection:
            connection.execute(update(table).where(table.c.id == 1).values(job="{"))
        relay = shop.outbox.relay(shop.engine)
        assert relay.run_once() == 2
        assert shop.ids() == ["1", "1"]
        assert "row 1 holds no job" in shop.rows()[0].error
        with shop.engine.begin() as connection:
            connection.execute(delete(table).where(table.c.id == 1))
        assert relay.run_once() == 1
        assert shop.queued(1) == ["b"]

    def test_that_redis_refuses(self, shop):
        """What sits under one shard's key is not what should: other ids of the queue go on."""
        shop.sync.shards_count = 1
        shop.put({"id": 1, "payload": "a"}, {"id": 1, "payload": "b"}, {"id": 2})
        push = shop.app.push_validated

        def refuse_1(queue, jobs):
            if any(job.id == b"1" for job in jobs):
                shop.app.redis().set("text", "x")
                try:
                    shop.app.redis().lpush("text", "y")
                except Exception as error:
                    from lowkiq import PushFailed

                    raise PushFailed("Redis took none") from error
            return push(queue, jobs)

        shop.app.push_validated = refuse_1
        assert shop.outbox.relay(shop.engine).run_once() == 2
        assert shop.ids() == ["1", "1"]
        assert "Redis took none" in shop.rows()[0].error
        assert shop.queued(2) == [""]

    def test_of_another_queue_that_redis_keeps_otherwise(self, shop, make_app):
        other = shop.app.worker(queue_name="other")(lambda batch: None)
        with shop.session() as session, session.begin():
            shop.outbox.push(session, other, [{"id": 1}])
        shop.put({"id": 2})
        shop.app.redis().hset(f"{shop.app.settings.namespace}:queues", "other", "99:5")
        assert shop.outbox.relay(shop.engine).run_once() == 2
        (row,) = shop.rows()
        assert row.queue == "other"
        assert "upgrade it" in row.error
        assert shop.queued(2) == [""]

    def due(self, shop):
        with shop.engine.begin() as connection:
            connection.execute(update(shop.outbox.table).where(shop.outbox.table.c.retry_at > 0).values(retry_at=1))


def test_client_middlewares_are_around_the_putting(make_app, database):
    seen = []

    def tag(worker, batch, call):
        seen.append([dict(job) for job in batch])
        for job in batch:
            job["tags"] = ["eu"]
        seen.append(call())

    app = make_app(client_middlewares=[tag])
    metadata = MetaData()
    outbox, engine = Outbox(app, metadata), create_engine(database)
    metadata.create_all(engine)
    sync = app.worker(queue_name="sync")(lambda batch: None)
    with Session(engine) as session, session.begin():
        outbox.push(session, sync, [{"id": 1}])
    assert outbox.relay(engine).run_once() == 1
    engine.dispose()
    assert seen == [[{"id": 1}], Pushed(0, 0)]
    assert sync.queries.fetch([1])[0].tags == ("eu",)


def test_an_async_middleware_needs_an_awaited_push(database):
    async def traced(worker, batch, call):
        return await call()

    app = Lowkiq(client_middlewares=[traced])
    outbox = Outbox(app, MetaData())
    sync = app.worker(queue_name="sync")(lambda batch: None)
    with Session(create_engine(database)) as session, pytest.raises(SettingsError, match="await apush"):
        outbox.push(session, sync, [{"id": 1}])


class TestRunning:
    """A relay on a thread: it is told of commits, and outlives Redis and the database."""

    def test_a_commit_wakes_it(self, shop):
        with shop.outbox.relay(shop.engine, every=600):
            for n in range(3):
                shop.put({"id": n})
                wait_until(lambda: shop.rows() == [])
        assert shop.app.metrics()["sync"].length == 3

    def test_it_looks_by_itself_for_commits_of_other_processes(self, shop):
        with shop.outbox.relay(shop.engine, every=0.05):
            shop.outbox._relays.clear()
            shop.put({"id": 1})
            wait_until(lambda: shop.rows() == [])

    def test_it_goes_on_when_redis_is_back(self, own_redis_server, make_app, database, capsys):
        app = make_app(redis_url=own_redis_server.url, push_timeout=0.2)
        metadata = MetaData()
        outbox, engine = Outbox(app, metadata), create_engine(database)
        metadata.create_all(engine)
        sync = app.worker(queue_name="sync")(lambda batch: None)
        own_redis_server.kill()
        with outbox.relay(engine):
            with Session(engine) as session, session.begin():
                outbox.push(session, sync, [{"id": 1}])
            shown = []
            wait_until(lambda: shown.append(capsys.readouterr().out) or "outbox_relay_failed" in "".join(shown))
            own_redis_server.start()
            wait_until(lambda: sync.queries.fetch([1]))
        engine.dispose()


def test_a_task_puts_its_calls(shop):
    bill = lowkiq.celery.task(key="order_id", app=shop.app, name="bill", queue="bills")(by_order)
    with shop.session() as session, session.begin():
        shop.outbox.push(session, bill, [bill.job(17, "paid")])
        push_on_commit(session, bill, [bill.job(18, "paid")])
    assert [row.queue for row in shop.rows()] == ["bills"]
    shop.outbox.relay(shop.engine).run_once()
    assert [job.id for job in bill.worker.queries.fetch([17, 18])] == ["17", "18"]
    with shop.session() as session, pytest.raises(SettingsError, match="is no worker"):
        shop.outbox.push(session, print, [{"id": 1}])


def by_order(order_id, state):
    pass
