"""Fewer runs: debounce, throttle and keep, by worker and by job, whatever else becomes of an id."""

from __future__ import annotations

import asyncio

import pytest

from lowkiq import Debounce, InvalidJob, Pushed, SettingsError
from lowkiq.admin.metrics import read_shards
from lowkiq.queue.shard import Exhausted, Snoozed
from tests.queue.model.virtual_clock import BEGINNING
from tests.queue.shard_driver import FUTURE

#: Words of a job (fewer.lua).
LAST, FIRST, ALL = ":::last", ":::first", ":::all"
SLOW = "2.000000:30.000000::"
SPARE = "::60.000000:"
START = BEGINNING / 1e6


def push(shard, id, payload=b"p", word="", score=""):
    return shard.push_all((id, payload, score, "", "", "", word))


def due(shard, id):
    """Seconds after the beginning."""
    return shard.queued()[id].perform_in - START


def payloads(shard, id):
    return list(shard.queued()[id].payloads)


def superseded(shard):
    (numbers,) = read_shards(shard.caller, [shard.shard])
    return numbers.superseded


# ── debounce ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_push_puts_a_debounced_id_off_but_not_past_the_first_one_s_limit(shard, clock):
    push(shard, "a", b"0", SLOW)
    first = due(shard, "a")
    assert first == pytest.approx(2, abs=0.001)
    for n in range(1, 31):
        clock.step(1_000_000)
        assert push(shard, "a", b"%d" % n, SLOW) == (0, 1)
        assert due(shard, "a") == pytest.approx(min(n + 2, 30), abs=0.001)
    lease = shard.lease()
    clock.step(1_000_000)
    (job,) = lease.claim()
    assert job.payloads == [b"%d" % n for n in range(31)]
    assert "debounced" not in shard.names()


def test_a_debounced_id_that_runs_is_debounced_anew_by_what_is_pushed_meanwhile(shard, clock):
    push(shard, "a", b"1", SLOW)
    clock.step(3_000_000)
    lease = shard.lease()
    lease.claim()
    push(shard, "a", b"2", SLOW)
    assert due(shard, "a") == pytest.approx(5, abs=0.001)
    lease.ack("a")
    assert lease.claim() == []


@pytest.mark.parametrize("how", ["fails", "snoozes", "blocks"])
def test_what_waits_for_something_else_is_not_moved(shard, clock, how):
    lease = shard.lease()
    push(shard, "a", b"1", SLOW)
    clock.step(3_000_000)
    lease.claim()
    push(shard, "a", b"2", SLOW)
    if how == "fails":
        lease.fail("a", delay=7)
    elif how == "snoozes":
        lease.settle(snoozed=[Snoozed("a", 7)])
    else:
        lease.settle(exhausted=[Exhausted("a", "boom", "block")])
    before = due(shard, "a")
    push(shard, "a", b"3", SLOW)
    assert due(shard, "a") == before
    assert payloads(shard, "a") == [b"1", b"2", b"3"]


def test_a_person_who_wants_it_now_is_not_put_off(shard, clock):
    push(shard, "a", b"1", SLOW)
    shard.call("perform_now", "a")
    push(shard, "a", b"2", SLOW)
    (job,) = shard.lease().claim()
    assert job.payloads == [b"1", b"2"]


def test_one_that_is_queued_and_not_debounced_keeps_its_place(shard, clock):
    push(shard, "a", b"1")
    push(shard, "a", b"2", SLOW)
    assert due(shard, "a") == pytest.approx(0, abs=0.001)
    shard.push("b", b"1", "", FUTURE)
    push(shard, "b", b"2", SLOW)
    assert shard.queued()["b"].perform_in == FUTURE
    push(shard, "c", b"1", SLOW)
    push(shard, "c", b"2")
    assert due(shard, "c") == pytest.approx(2, abs=0.001)


def test_the_owner_is_told_of_a_due_time_that_a_shorter_wait_brings_forward(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SLOW)
    lease.claim()
    assert float(shard.owner("waiting")) - START == pytest.approx(2, abs=0.001)
    push(shard, "a", b"2", "1.000000:9.000000::")
    assert float(shard.owner("waiting")) - START == pytest.approx(1, abs=0.001)
    push(shard, "a", b"3", SLOW)
    assert float(shard.owner("waiting")) - START == pytest.approx(1, abs=0.001)


def test_when_the_clock_is_set_back_a_debounced_id_waits_no_longer_than_its_limit(shard, clock):
    push(shard, "a", b"1", SLOW)
    clock.step(-3600 * 1_000_000)
    push(shard, "a", b"2", SLOW)
    assert due(shard, "a") == pytest.approx(-3598, abs=0.001)
    for _ in range(40):
        clock.step(1_000_000)
        push(shard, "a", b"3", SLOW)
    assert due(shard, "a") == pytest.approx(-3570, abs=0.001)


# ── throttle ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_id_starts_at_most_once_within_its_throttle_and_all_is_handed_over_together(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    lease.ack("a")
    for n in (2, 3, 4):
        push(shard, "a", b"%d" % n, SPARE)
    push(shard, "b", b"1", SPARE)
    assert due(shard, "a") == pytest.approx(60, abs=0.001)
    assert [job.id for job in lease.claim()] == ["b"]
    lease.ack("b")
    clock.step(59_999_000)
    assert lease.claim() == []
    clock.step(1_001)
    (job,) = lease.claim()
    assert job.payloads == [b"2", b"3", b"4"]


@pytest.mark.parametrize("how", ["plain", "fails", "snoozes", "dies", "leftover"])
def test_no_later_claim_starts_it_before_whoever_queues_it(shard, clock, how):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    push(shard, "a", b"2", SPARE)
    lease.claim(max_payloads=1 if how == "leftover" else 9)
    if how == "fails":
        lease.fail("a", delay=1)
    elif how == "snoozes":
        lease.settle(snoozed=[Snoozed("a", 1)])
    elif how == "dies":
        lease = shard.lease("b", dead=["a"])
    else:
        lease.ack("a")
    if how == "plain":
        push(shard, "a", b"3")
    clock.step(2_000_000)
    assert lease.claim() == []
    clock.step(57_999_999)
    assert lease.claim() == []
    clock.step(1)
    assert [job.id for job in lease.claim()] == ["a"]


def test_a_retry_is_a_start_too(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    lease.fail("a", delay=1)
    clock.step(60_000_000)
    assert lease.claim()
    lease.ack("a")
    clock.step(1_000_000)
    push(shard, "a", b"2", SPARE)
    assert due(shard, "a") == pytest.approx(120, abs=0.001)


@pytest.mark.parametrize("how", ["release", "settle", "settle the rest"])
def test_a_job_that_goes_back_without_having_run_may_start_at_once(shard, clock, how):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    if how == "release":
        lease.release("claim")
    elif how == "settle":
        lease.settle(released=["a"])
    else:
        lease.settle(rest="release")
    assert [job.id for job in lease.claim()] == ["a"]


def test_one_that_had_started_and_goes_back_may_not(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    lease.settle(released=["a"], stopped=["a"])
    assert lease.claim() == []
    clock.step(60_000_000)
    assert lease.claim()


def test_nothing_is_handed_over_while_an_id_is_kept_back(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    assert shard.caller.run(shard.shard.finish("a", lease.epoch, lease.number, lease.number + 1)) is None
    lease.ack("a")
    assert lease.claim() == []
    assert not shard.owner("open")
    clock.step(60_000_000)
    assert lease.claim() == []
    assert shard.owner("open")
    assert shard.names() == {"meta", "owner"}


def test_perform_now_overrides_a_throttle(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    lease.ack("a")
    push(shard, "a", b"2", SPARE)
    assert lease.claim() == []
    assert shard.call("perform_now", "a") == 1
    assert [job.id for job in lease.claim()] == ["a"]


def test_ids_that_may_not_start_hold_up_no_others_and_are_met_once(shard, clock):
    lease = shard.lease()
    for n in range(50):
        push(shard, f"id {n}", b"1", SPARE)
    lease.claim()
    lease.settle(rest="ack")
    for n in range(50):
        push(shard, f"id {n}", b"2")
    push(shard, "last", b"1")
    assert [job.id for job in lease.claim(10)] == ["last"]
    assert all(job.perform_in >= START + 60 for job in shard.queued().values())


def test_a_throttle_is_by_the_clock_though_a_shard_s_time_runs_ahead_of_it(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    lease.ack("a")
    clock.step(59_500_000)
    shard.redis.hset(shard.key("meta"), "last_score", clock.now + 700_000)
    push(shard, "a", b"2")
    assert lease.claim() == []
    clock.step(500_001)
    shard.redis.hset(shard.key("meta"), "last_score", clock.now + 700_000)
    assert [job.id for job in lease.claim()] == ["a"]


def test_when_the_clock_is_set_back_nobody_waits_longer_than_a_throttle(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", SPARE)
    lease.claim()
    lease.ack("a")
    clock.step(-3600 * 1_000_000)
    push(shard, "a", b"2", SPARE)
    clock.step(61_000_000)
    assert [job.id for job in lease.claim()] == ["a"]


# ── keep ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_highest_score_is_kept_and_all_others_are_counted(shard):
    push(shard, "a", b"5", LAST, 5.0)
    push(shard, "a", b"9", LAST, 9.0)
    assert push(shard, "a", b"7", LAST, 7.0) == (0, 1)
    assert payloads(shard, "a") == [b"9"]
    assert superseded(shard) == 2
    assert shard.meta("merged") == 2


def test_the_lowest_score_is_kept(shard):
    for score in (5.0, 3.0, 4.0):
        push(shard, "a", b"%d" % score, FIRST, score)
    assert payloads(shard, "a") == [b"3"]


def test_of_equal_scores_the_later_push_is_the_last_and_the_earlier_the_first(shard):
    for payload in (b"1", b"2", b"3"):
        push(shard, "last", payload, LAST, 5.0)
        push(shard, "first", payload, FIRST, 5.0)
    assert (payloads(shard, "last"), payloads(shard, "first")) == ([b"3"], [b"1"])


def test_an_equal_payload_has_the_score_of_its_last_push(shard):
    push(shard, "a", b"paid", LAST, 1.0)
    push(shard, "a", b"paid", LAST, 3.0)
    push(shard, "a", b"sent", LAST, 2.0)
    assert payloads(shard, "a") == [b"paid"]
    assert superseded(shard) == 1


@pytest.mark.parametrize("how", ["fails", "snoozes", "goes back", "dies", "blocks", "several"])
def test_what_comes_back_from_a_run_is_kept_only_if_nothing_higher_was_pushed_meanwhile(shard, how):
    lease = shard.lease()
    for id, score in (("a", 5.0), ("b", 5.0)):
        push(shard, id, b"running", LAST, score)
    if how == "several":
        push(shard, "a", b"beside", "", 4.0)
    lease.claim()
    push(shard, "a", b"higher", LAST, 6.0)
    push(shard, "b", b"lower", LAST, 4.0)
    assert shard.claimed()["a"].payloads.get(b"running"), "what runs is left alone"
    for id in ("a", "b"):
        if how in {"fails", "several"}:
            lease.fail(id)
        elif how == "snoozes":
            lease.settle(snoozed=[Snoozed(id, 1)])
        elif how == "blocks":
            lease.settle(exhausted=[Exhausted(id, "boom", "block")])
    if how == "goes back":
        lease.release("claim")
    elif how == "dies":
        shard.lease("b", dead=["a"])
    assert (payloads(shard, "a"), payloads(shard, "b")) == ([b"higher"], [b"running"])
    assert superseded(shard) == (3 if how == "several" else 2)


def test_the_morgue_keeps_each_payload_that_died_and_a_revived_one_is_superseded_by_what_is_queued(shard):
    lease = shard.lease()
    for n in (1, 2):
        push(shard, "a", b"%d" % n, LAST)
        lease.claim()
        lease.exhaust("a")
    assert list(shard.morgue()["a"].payloads) == [b"1", b"2"]
    push(shard, "a", b"3", LAST)
    shard.actions.morgue_queue_up(["a"])
    assert payloads(shard, "a") == [b"3"]
    assert superseded(shard) == 2
    assert not shard.morgue()


def test_a_push_without_it_is_kept_beside_until_the_next_one_with_it(shard):
    push(shard, "a", b"1", LAST)
    push(shard, "a", b"2")
    push(shard, "a", b"3")
    assert payloads(shard, "a") == [b"1", b"2", b"3"]
    push(shard, "a", b"4", LAST)
    assert payloads(shard, "a") == [b"4"]
    push(shard, "a", b"5", ALL)
    assert payloads(shard, "a") == [b"4", b"5"]
    assert "rules" not in shard.names()


def test_memory_is_flat_however_much_is_pushed(shard):
    def used() -> int:
        names = ("due", "payloads", "rules", "debounced")
        return sum(shard.redis.memory_usage(shard.key(name), samples=0) for name in names)

    jobs = [(f"id {n}", b"x" * 100, "", "", "", "", "2.000000:30.000000:60.000000:last") for n in range(100)]
    shard.push_all(*jobs)
    shard.push_all(*jobs)
    before = used()
    for _ in range(50):
        shard.push_all(*jobs)
    assert used() < before * 1.05  # of a sorted set it depends on chance


def test_rules_go_with_their_ids(shard, clock):
    lease = shard.lease()
    push(shard, "a", b"1", "2.000000:30.000000:60.000000:last")
    push(shard, "b", b"1", "2.000000:30.000000:60.000000:last")
    clock.step(3_000_000)
    lease.claim()
    lease.ack("a")
    assert shard.look().hash("rules") == {"b": b"60.000000:last"}
    lease.exhaust("b")
    assert shard.names() == {"meta", "owner", "spaced", "morgue", "morgue:payloads", "morgue:errors"}


def test_an_undone_deletion_brings_its_rule_back(shard, clock):
    push(shard, "a", b"1", "2.000000:30.000000:60.000000:last")
    shard.call("put_away", shard.shard.layout, "queue", "1" * 16, 60, "a")
    assert "rules" not in shard.names()
    shard.call("put_back", shard.shard.layout, "1" * 16, "a")
    assert shard.look().hash("rules") == {"a": b"60.000000:last"}


def test_a_tracked_id_tells_that_a_payload_was_superseded(shard):
    shard.actions.track(["a"])
    push(shard, "a", b"1", LAST)
    push(shard, "a", b"2", LAST)
    kinds = [text.split()[0] for text in shard.redis.lrange(shard.key("tracked:a"), 0, -1)]
    assert kinds == [b"pushed", b"pushed", b"superseded"]


# ── what producers say ──────────────────────────────────────────────────────────────────────────────────────────────

WRONG = {
    "debounce is 2, it must be Debounce": {"debounce": 2},
    "throttle is 0, it must be a number of seconds": {"throttle": 0},
    "throttle is True": {"throttle": True},
    "throttle is 'hour'": {"throttle": "hour"},
    'keep is .newest., it must be "all", "last" or "first"': {"keep": "newest"},
    "keep is None": {"keep": None},
    "debounce and delay both say when it is due": {"debounce": Debounce(1, 2), "delay": 3},
    "debounce and perform_in both say": {"debounce": Debounce(1, 2), "perform_in": 2e9},
    "debounce and at both say": {"debounce": Debounce(1, 2), "at": 2e9},
    "unknown key `throtle`, did you mean `throttle`": {"throtle": 1},
}


@pytest.mark.parametrize(("message", "job"), WRONG.items())
def test_what_can_t_be_is_refused_before_anything_is_written(app, message, job):
    @app.worker(queue_name="q")
    def work(id, payloads): ...

    with pytest.raises(InvalidJob, match=message):
        work.perform_async([{"id": "a"}, {"id": "b"} | job])
    assert not work.queries.fetch(["a"])


@pytest.mark.parametrize(("wait", "at_most"), [(0, 1), (2, 1), (float("nan"), 1), ("1", 2), (1, float("inf"))])
def test_a_debounce_that_can_t_be(wait, at_most):
    with pytest.raises(SettingsError, match="Debounce: "):
        Debounce(wait, at_most)


@pytest.mark.parametrize("options", [{"debounce": 2}, {"throttle": -1}, {"keep": "one"}])
def test_an_option_that_can_t_be(app, options):
    with pytest.raises(SettingsError, match=f"worker work: {next(iter(options))} is"):

        @app.worker(**options)
        def work(id, payloads): ...


def test_the_options_of_a_worker_hold_for_jobs_that_do_not_say_otherwise(app, clock):
    @app.worker(queue_name="q", debounce=Debounce(2, at_most=30), throttle=60, keep="last", shards_count=1)
    def work(id, payloads): ...

    work.perform_async([{"id": "a", "payload": 1}, {"id": "a", "payload": 2}, {"id": "b", "delay": 9}])
    work.perform_async([{"id": "c", "payload": n, "keep": "all", "debounce": None} for n in (1, 2)])
    asyncio.run(work.aperform_async([{"id": "a", "payload": 3}]))
    jobs = {job.id: job for job in work.queries.fetch(["a", "b", "c"])}
    assert [job.payloads for job in jobs.values()] == [[3], [""], [1, 2]]
    dues = [round(job.perform_in - START) for job in jobs.values()]
    assert dues == [2, 9, 0]


def test_awaited_pushes_are_told_what_became_of_each(app, clock):
    @app.worker(queue_name="q", keep="last", shards_count=1)
    def work(id, payloads): ...

    async def push_all() -> list[Pushed]:
        await work.aperform_async([{"id": "z", "payload": 0}])
        return await asyncio.gather(*(work.aperform_async([{"id": "a", "payload": n}]) for n in range(9)))

    assert asyncio.run(push_all()) == [Pushed(1, 0), *[Pushed(0, 1)] * 8]
    (job,) = work.queries.fetch(["a"])
    assert job.payloads == [8]
