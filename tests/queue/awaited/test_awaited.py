"""Awaited pushes: what they write and answer, and in which order."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lowkiq import InvalidJob, NewerLayout, Pushed, ShardsCountMismatch
from lowkiq.queue.push_calls import MAX_PUSH_BYTES
from lowkiq.transport.nonblocking import NonBlocking
from tests.queue.awaited.pushes import payloads, run, together, work
from tests.queue.bells import bell_of
from tests.queue.shard_driver import FUTURE
from tests.support import wait_until


def test_it_answers_as_a_push_does(app, worker):
    async def main():
        return [
            await worker.aperform_async([{"id": "a"}, {"id": "b"}]),
            await worker.aperform_async([{"id": "b", "payload": 2}, {"id": "c"}, {"id": "c", "payload": 2}]),
            await worker.aperform_async([{"id": "d"}]),
            await worker.aperform_async([{"id": "d", "payload": 2}]),
            await worker.aperform_async([]),
            await worker.aperform_async({"id": number} for number in range(2_500)),
        ]

    assert run(app, main()) == [(2, 0), (1, 2), (1, 0), (0, 1), (0, 0), (2_500, 0)]
    assert app.metrics()["q"].length == 2_504


@pytest.mark.parametrize("number", [1, 2, 3, 4, 20, 1_000])
def test_each_of_those_that_go_together_has_its_own_answer(app, worker, number):
    """Half of the ids are queued already; one comes twice."""
    worker.perform_async([{"id": n, "payload": "before"} for n in range(0, number, 2)])
    jobs = [{"id": n, "payload": n} for n in range(number)]
    assert run(app, together(worker, *jobs, {"id": 0, "payload": "again"})) == [
        *((0, 1) if n % 2 == 0 else (1, 0) for n in range(number)),
        (0, 1),
    ]
    metrics = app.metrics()["q"]
    assert (metrics.length, metrics.pushed) == (number, number + 1 + (number + 1) // 2)


@pytest.mark.parametrize("known", [False, True])
def test_pushes_are_in_redis_in_the_order_in_which_they_were_begun(app, worker, known):
    """Of all ids together: singles, lists, those with a time or a score; also where some merge and others don't."""
    if known:
        worker.perform_async([{"id": id, "payload": "before"} for id in "ac"])
    ids = "abcde"

    async def main():
        pushes = []
        for number in range(300):
            job = {"id": ids[number % 5], "payload": number}
            if number % 7 == 0:
                job["perform_in"] = FUTURE
            pushes.append(worker.aperform_async([job, {"id": "x", "payload": number}] if number % 11 == 0 else [job]))
        await asyncio.gather(*pushes)

    run(app, main())
    for id, found in payloads(worker, *ids).items():
        assert [payload for payload in found if payload != "before"] == list(range(ids.index(id), 300, 5))


@pytest.mark.parametrize("number", [2, 30])
def test_what_redis_refuses_once_is_not_overtaken_by_what_follows_it(app, worker, connected, monkeypatch, number):
    """Redis has forgotten the scripts, and somebody loads them between two commands of a round trip."""
    app._producer(worker).register()
    sources = [script.source for script in app.caller._choose().values()]
    write = NonBlocking.write

    def load_after_the_first(connection, packed):
        write(connection, packed)
        monkeypatch.setattr(NonBlocking, "write", write)
        wait_until(lambda: errors_of(app) > before)
        app.caller._server.load(sources)

    async def main():
        nonlocal before
        await worker.aperform_async([{"id": "a"}])
        app.redis().script_flush()
        before = errors_of(app)
        monkeypatch.setattr(NonBlocking, "write", load_after_the_first)
        jobs = [{"id": "x", "payload": n, "perform_in": FUTURE} for n in range(number)]
        assert await together(worker, *jobs) == [(1, 0), *[(0, 1)] * (number - 1)]

    before = 0
    run(app, main())
    assert payloads(worker, "x") == {"x": list(range(number))}


def errors_of(app) -> int:
    return app.redis().info("errorstats").get("errorstat_NOSCRIPT", {"count": 0})["count"]


def test_what_goes_on_in_a_thread_is_not_overtaken_when_every_task_is_cancelled(app, worker, monkeypatch):
    """As programs do that end; what they push last comes last."""
    producer = app._producer(worker)
    producer.register()
    run_in_thread, may_go, has_begun = producer.run, threading.Event(), threading.Event()

    def slow(calls, until, *more):
        has_begun.set()
        may_go.wait(60)
        return run_in_thread(calls, until, *more)

    async def main():
        monkeypatch.setattr(app._awaited.current(), "_pool", None)  # as on a cluster
        monkeypatch.setattr(producer, "run", slow)
        first = asyncio.create_task(worker.aperform_async([{"id": "a", "payload": 1}]))
        await asyncio.to_thread(has_begun.wait, 60)
        monkeypatch.undo()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        closing = asyncio.create_task(app.aclose())
        await asyncio.sleep(0.1)
        assert not closing.done()
        last = asyncio.create_task(worker.aperform_async([{"id": "a", "payload": 2}]))
        await asyncio.sleep(0.1)
        may_go.set()
        assert await last == (0, 1)

    run(app, main())
    assert payloads(worker, "a") == {"a": [1, 2]}


def test_a_queue_that_is_refused_spoils_no_other(app, make_app, worker):
    app.redis().hset(f"{app.settings.namespace}:queues", "other", "4:3")
    other = app.worker(queue_name="other", shards_count=3)(work)

    async def main():
        pushes = [pushing.aperform_async([{"id": n}]) for n in range(5) for pushing in (other, worker)]
        return await asyncio.gather(*pushes, return_exceptions=True)

    results = run(app, main())
    assert {type(result) for result in results[::2]} == {NewerLayout}
    assert results[1::2] == [(1, 0)] * 5


def test_no_script_gets_more_bytes_than_a_push_may_have(make_app, monkeypatch):
    app = make_app(dump_payload=bytes, load_payload=bytes)  # which takes no time
    worker = app.worker(queue_name="q", shards_count=3)(work)
    sizes = []
    command_of = app.caller.command_of

    def spy(call, **options):
        sizes.append(sum(len(word) for word in call.arguments if isinstance(word, bytes)))
        return command_of(call, **options)

    async def main():
        await worker.aperform_async([{"id": "a", "payload": b""}])
        monkeypatch.setattr(app.caller, "command_of", spy)
        for id in (str, lambda _: "same"):
            await together(worker, *({"id": id(n), "payload": b"%d" % n + bytes(900_000)} for n in range(20)))

    run(app, main())
    assert max(sizes) < MAX_PUSH_BYTES + 1_000_000
    assert len(payloads(worker, "same")["same"]) == 20


def test_a_push_that_was_awaited_is_before_one_that_begins_then(app, worker):
    async def task(id):
        for number in range(50):
            await worker.aperform_async([{"id": id, "payload": number}])

    async def main():
        await asyncio.gather(*map(task, "abcdef"))

    run(app, main())
    assert all(found == list(range(50)) for found in payloads(worker, *"abcdef").values())


def test_a_bad_job_is_told_to_its_own_maker_and_writes_nothing(app, worker):
    async def main():
        jobs = [{"id": "a"}, {"id": ""}, {"id": "b"}, {"id": "c", "zzz": 1}, {"id": "d"}]
        results = await asyncio.gather(*(worker.aperform_async([job]) for job in jobs), return_exceptions=True)
        assert [type(result) for result in results] == [Pushed, InvalidJob, Pushed, InvalidJob, Pushed]
        with pytest.raises(InvalidJob, match=r"job 1500 .*id must be"):
            await worker.aperform_async([*({"id": number} for number in range(1_500)), {"id": None}])
        for jobs in ({"id": "a"}, "a", 5, None):
            with pytest.raises(InvalidJob, match="takes a list of jobs"):
                await worker.aperform_async(jobs)

    run(app, main())
    assert app.metrics()["q"].length == 3


def test_a_refusal_is_told(app, worker):
    async def main():
        await worker.aperform_async([{"id": "a"}])
        app.redis().hset(f"{app.settings.namespace}:{{q:0}}:meta", "layout", 9)
        return await asyncio.gather(
            *(worker.aperform_async([{"id": number}]) for number in range(60)), return_exceptions=True
        )

    results = run(app, main())
    assert {type(result) for result in results} == {Pushed, ShardsCountMismatch}
    assert app.metrics()["q"].length == 1 + sum(isinstance(result, Pushed) for result in results)


def test_a_spoiled_shard_spoils_no_other(app, worker):
    results = []

    async def main():
        await worker.aperform_async([{"id": "1"}])
        app.redis().set(f"{app.settings.namespace}:{{q:0}}:due", "no zset")
        jobs = [{"id": number} for number in range(2, 62)]
        results.extend(await asyncio.gather(*(worker.aperform_async([job]) for job in jobs), return_exceptions=True))

    run(app, main())
    assert {isinstance(result, Pushed) for result in results} == {True, False}
    assert app.metrics()["q"].length == 1 + results.count((1, 0))


def test_who_waits_for_jobs_is_rung(app, worker, connected):
    bells = []
    app._producer(worker).register()  # else they would go the usual way
    for number, shard in enumerate(app.shards("q", 3)):
        bells.append(bell_of(app, f"{app.settings.namespace}:bell:n:{number}"))
        app.caller.run(shard.acquire("n", 60, 3, bell=bells[-1].key))
    assert run(app, together(worker, *({"id": number} for number in range(40)))) == [(1, 0)] * 40
    for bell in bells:
        assert bell.wait(30, is_idle=False).ring
        bell.close()


def test_when_redis_has_lost_the_scripts_all_are_pushed_once(app, worker, connected):
    async def main():
        await worker.aperform_async([{"id": "before"}])
        for round in range(3):
            app.redis().script_flush()
            await together(worker, *({"id": f"{round}-{number}"} for number in range(20)))
            app.redis().script_flush()
            assert await worker.aperform_async([{"id": f"{round}-x"}, {"id": f"{round}-y"}]) == (2, 0)

    run(app, main())
    assert (app.metrics()["q"].pushed, app.metrics()["q"].merged) == (67, 0)
    assert len(connected) == 1


@pytest.mark.parametrize("jobs", [1, 2_000])
def test_one_who_no_longer_awaits_disturbs_no_other(app, worker, connected, jobs):
    async def main():
        await worker.aperform_async([{"id": "before"}])
        given_up = [
            asyncio.create_task(worker.aperform_async([{"id": f"{n}-{m}"} for m in range(jobs)])) for n in range(10)
        ]
        kept = [asyncio.create_task(worker.aperform_async([{"id": f"kept-{n}"}])) for n in range(20)]
        for task in given_up:
            await asyncio.sleep(0)
            task.cancel()
        assert await asyncio.gather(*kept) == [(1, 0)] * 20
        assert all(task.done() for task in given_up)
        assert await worker.aperform_async([{"id": "after"}]) == (1, 0)

    run(app, main())
    assert len(payloads(worker, *(f"kept-{n}" for n in range(20)), "after")) == 21
    assert len(connected) == 1
