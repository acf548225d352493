"""A relay over a store that is a list: what it does with rows, without a database."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import redis

from lowkiq import Lowkiq, PushFailed
from lowkiq.outbox import Relay, Row, advisory_key, file_lock, send
from lowkiq.outbox.relay import Rest
from tests.support import SOURCES, wait_until


class ListStore:
    """Keeps rows in memory. It is a store as `OutboxStore` says, and a turn as `Turn` does."""

    def __init__(self, *rows):
        self.rows = list(rows)
        self.lock = threading.Lock()
        self.refused = {}

    @contextmanager
    def turn(self):
        if not self.lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self
        finally:
            self.lock.release()

    def oldest(self, limit, now):
        held = [self.row(id) for id, (_, until) in self.refused.items() if until > now]
        left = [row for row in self.rows if not any(self.same(row, one) and row.id >= one.id for one in held)]
        return sorted(left)[:limit]

    def delete(self, ids):
        self.rows = [row for row in self.rows if row.id not in ids]

    def refuse(self, ids, error, retry_at):
        self.refused |= dict.fromkeys(ids, (error, retry_at))

    def row(self, id):
        return next(row for row in self.rows if row.id == id)

    @staticmethod
    def same(one, other):
        return (one.queue, one.job_id) == (other.queue, other.job_id)


def row(id, job_id="17", queue="sync", tries=0):
    return Row(id, queue, job_id, f'{{"id":"{job_id}","payload":"{id}"}}', tries)


@pytest.fixture
def sync(app):
    return app.worker(queue_name="sync")(lambda batch: None)


def test_it_sends_in_the_order_of_ids_batch_by_batch(app, sync):
    store = ListStore(*(row(id) for id in (3, 1, 2)))
    relay = Relay(app, store, batch=2)
    assert [relay.run_once() for _ in range(3)] == [2, 1, 0]
    assert sync.queries.fetch([17])[0].payloads == [1, 2, 3]


def test_nothing_is_deleted_when_redis_is_away(make_app):
    app = make_app(redis_url="redis://127.0.0.1:1/0", push_timeout=0.05)
    app.worker(queue_name="sync")(lambda batch: None)
    store = ListStore(row(1))
    with pytest.raises(PushFailed):
        Relay(app, store).run_once()
    assert (len(store.rows), store.refused) == (1, {})
    assert not store.lock.locked()


def test_a_refused_row_is_tried_again_later_each_time_but_within_a_minute(app):
    waits = []
    for tries in (0, 1, 5, 6, 100):
        store = ListStore(row(1, tries=tries))
        (refused,) = send(app, store.rows).rejected
        from lowkiq.outbox.sending import retry_in

        waits.append(retry_in(refused[0]))
    assert waits == [1, 2, 32, 60, 60]


def test_later_rows_of_a_refused_one_stay_and_others_go(app, sync):
    bad = Row(1, "sync", "17", "{")
    outcome = send(app, [bad, row(2), row(3, "18"), row(4, "17", "other")])
    assert [one.id for one in outcome.sent] == [3]
    assert [one.id for one, _ in outcome.rejected] == [1, 4]


def test_it_stops_from_any_thread_and_can_be_started_again(app, sync):
    relay = Relay(app, ListStore(), every=600)
    for _ in range(2):
        with relay:
            wait_until(relay._thread.is_alive)
    assert relay._thread is None


def test_a_file_s_lock_follows_and_waits_for_nothing_that_stands_in_its_place(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(OSError), file_lock(tmp_path / name):
            pass
    assert not (tmp_path / "target").exists()


def test_a_file_s_lock_is_of_one_process_or_thread_and_goes_with_its_process(tmp_path):
    path = tmp_path / "lock"
    with file_lock(path) as is_ours:
        assert is_ours
        with file_lock(path) as is_ours_again:
            assert not is_ours_again
    code = "import sys, pathlib, os, signal; from lowkiq.outbox import file_lock\n"
    code += "with file_lock(pathlib.Path(sys.argv[1])) as ours:\n    print(ours, flush=True)\n    sys.stdin.read()"
    environment = os.environ | {"PYTHONPATH": SOURCES}
    with subprocess.Popen(
        [sys.executable, "-c", code, path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"True\n"
        with file_lock(path) as is_ours:
            assert not is_ours
        process.kill()
        process.wait(60)
    with file_lock(path) as is_ours:
        assert is_ours


def test_numbers_of_locks_are_bigints_and_stay_as_they_are():
    assert advisory_key("relay", "lowkiq_outbox") == -213494803240926263
    assert all(-(2**63) <= advisory_key(str(n)) < 2**63 for n in range(100))
    assert advisory_key("a", "b") != advisory_key("ab")


def test_a_refused_row_stays_and_is_left_out_until_its_time(app, sync, monkeypatch):
    store = ListStore(Row(1, "sync", "17", "{"), row(2), row(3, "18"))
    relay, before = Relay(app, store), time.time()
    assert [relay.run_once(), relay.run_once()] == [2, 0]
    assert [one.id for one in store.rows] == [1, 2]
    ((id, (error, retry_at)),) = store.refused.items()
    assert id == 1 and "holds no job" in error and 0.9 < retry_at - before < 30
    store.refused = {1: (error, time.time() - 1)}
    assert relay.run_once() == 1, "it is refused again, and not before its time"
    store.lock.acquire()
    assert relay.run_once() is None


def pushing(app, monkeypatch, answer):
    """Has pushes go as `answer` says, which is given the ids; returns the ids of those that went well."""
    sent = []

    def push(queue, jobs):
        ids = [job.id.decode() for job in jobs]
        if error := answer(ids):
            raise error
        sent.append(ids)

    monkeypatch.setattr(app, "push_validated", push)
    return sent


def failed(cause):
    error = PushFailed("refused")
    error.__cause__ = cause
    return error


def test_what_redis_refuses_of_one_id_keeps_back_no_other(app, sync, monkeypatch):
    refusal = failed(redis.ResponseError("ERR too large"))
    sent = pushing(app, monkeypatch, lambda ids: refusal if "18" in ids else None)
    outcome = send(app, [row(1), row(2, "18"), row(3, "18"), row(4), Row(5, "sync", "19", "{")])
    assert sent == [["17", "17"]]
    assert [one.id for one in outcome.sent] == [1, 4]
    assert sorted(one.id for one, _ in outcome.rejected) == [2, 5], "what is behind a refused row stays as it is"


@pytest.mark.parametrize("cause", [redis.ConnectionError("away"), redis.exceptions.OutOfMemoryError("OOM"), None])
def test_a_redis_that_is_not_well_refuses_no_row(app, sync, monkeypatch, cause):
    pushing(app, monkeypatch, lambda _: failed(cause))
    with pytest.raises(PushFailed):
        send(app, [row(1), row(2, "18")])
    refusal = failed(redis.ResponseError("ERR"))
    pushing(app, monkeypatch, lambda ids: refusal if len(ids) > 1 else failed(cause))
    with pytest.raises(PushFailed):
        send(app, [row(1), row(2, "18")])


def test_a_relay_rests_longer_after_each_error_and_not_while_there_is_more():
    rest = Rest(5.0)
    assert [rest.after(3), rest.after(0), rest.after(None)] == [0.0, 5.0, 5.0]
    waits = [rest.after_error(ValueError("x")) for _ in range(9)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8] and waits[-1] == 10
    rest.after(1)
    assert rest.after_error(ValueError("x")) == 0.1


def test_it_goes_on_whatever_fails_and_hears_of_what_comes_during_a_turn(app, monkeypatch):
    relay, told = Relay(app, ListStore(), every=600), []
    turns = [relay.stop, lambda: 0, lambda: 1 / 0, lambda: relay.wake() or 0, lambda: 2]
    monkeypatch.setattr(relay, "run_once", lambda: (turns.pop()(),)[0])
    monkeypatch.setattr(relay._woken, "wait", lambda seconds: told.append((seconds, relay._woken.is_set())))
    monkeypatch.setattr(relay._stopped, "wait", told.append)
    relay.run()
    assert (told, turns) == ([(600, True), 0.1, (600, False)], [])
    assert relay._woken.is_set(), "a stop ends its rest"


def test_it_is_started_once_and_its_end_is_waited_for(app, monkeypatch):
    relay, going, turns = Relay(app, ListStore(), every=600), threading.Event(), []

    def turn():
        turns.append(threading.current_thread())
        going.wait(60)
        return 0

    monkeypatch.setattr(relay, "run_once", turn)
    thread = relay.start()._thread
    assert relay.start()._thread is thread
    wait_until(lambda: turns)
    monkeypatch.setattr(thread, "join", lambda: (going.set(), threading.Thread.join(thread)))
    relay.stop()
    assert not thread.is_alive() and turns == [thread]
    monkeypatch.setattr(relay, "run_once", lambda: (turns.append(threading.current_thread()), relay.stop())[1])
    relay.start()
    wait_until(lambda: len(turns) == 2 and not turns[1].is_alive())
    assert (relay._thread, relay._rest._errors) == (None, 0), "it does not wait for itself"


class TestCommand:
    """`python -m lowkiq.outbox MODULE:NAME`."""

    MODULE = """
import os
from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable
from lowkiq import Lowkiq
from lowkiq.sqlalchemy import Outbox

app = Lowkiq()
sync = app.worker(queue_name="sync")(lambda batch: None)
metadata = MetaData()
outbox = Outbox(app, metadata)
engine = create_engine("sqlite:///shop.db")
with engine.begin() as connection:  # two processes begin at once
    connection.execute(CreateTable(outbox.table, if_not_exists=True))
relay = outbox.relay(engine, every=0.05)

def put(n):
    with Session(engine) as session, session.begin():
        outbox.push(session, sync, [{"id": n}])
"""

    @pytest.fixture
    def start(self, app, tmp_path):
        (tmp_path / "shop.py").write_text(self.MODULE)
        environment = os.environ | {
            "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace, "PYTHONPATH": SOURCES,
        }  # fmt: skip
        processes = []

        def start(*arguments):
            processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments], env=environment, cwd=tmp_path, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )  # fmt: skip
            return processes[-1]

        yield start
        for process in processes:
            process.kill()
            process.communicate()

    def test_once_sends_what_there_is_and_ends(self, start, sync):
        assert start("-c", "import shop; [shop.put(n) for n in range(3)]").wait(60) == 0
        assert start("-m", "lowkiq.outbox", "shop:relay", "--once").wait(60) == 0
        assert len(sync.queries.fetch([0, 1, 2])) == 3

    @pytest.mark.parametrize("number", [2, 15])
    def test_it_runs_until_it_is_told_to_end(self, start, sync, number):
        process = start("-m", "lowkiq.outbox", "shop")
        assert start("-c", "import shop; shop.put(1)").wait(60) == 0
        wait_until(lambda: sync.queries.fetch([1]))
        process.send_signal(number)
        assert process.wait(60) == 0

    def test_what_is_no_relay_is_told(self, start):
        process = start("-m", "lowkiq.outbox", "shop:engine")
        assert process.wait(60) == 2
        assert "shop:engine is a Engine, it must be a relay" in process.communicate()[1]


def test_a_worker_that_is_not_here_is_told_with_those_that_are():
    app = Lowkiq()
    app.worker(queue_name="a")(lambda batch: None)
    ((_, error),) = send(app, [row(1, queue="b")]).rejected
    assert str(error) == "no queue 'b' here; known are: a"
