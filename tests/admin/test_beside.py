"""What people are told of a shard with several claims, and of an id that waits for its own run."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from lowkiq.admin.jobs.actions import CHUNK
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.queries import Queries
from lowkiq.admin.metrics import read_shards
from tests.admin.conftest import ids, pages
from tests.beside import HOT_DUE, run_beside
from tests.queue.shard_driver import FUTURE, PAST


def stats(shard):
    (row,) = read_shards(shard.caller, [shard.shard])
    return row


@pytest.fixture
def lease(shard):
    return run_beside(shard)


@pytest.fixture
def queries(app, shard):
    return Queries(
        app.caller, [shard.shard], load_payload=json.loads, load_error=str, max_id_bytes=512, max_payloads=100
    )


def test_jobs_and_claims_in_hand_are_those_of_all_claims(shard, lease):
    row = stats(shard)
    assert (row.busy, row.claims) == (2, 2)
    lease.settle(1, rest="ack")
    assert (stats(shard).busy, stats(shard).claims) == (1, 1)
    lease.settle(2, rest="ack")
    assert (stats(shard).busy, stats(shard).claims) == (0, 0)


def test_what_waits_for_its_own_run_is_queued_but_not_late(shard, lease):
    row = stats(shard)
    assert (row.length, row.waiting, row.due_in, row.lag) == (1, 1, None, 0.0)
    shard.push("later", perform_in=FUTURE)
    assert stats(shard).due_in == pytest.approx(FUTURE - shard.now(), abs=60)
    shard.push("late", perform_in=PAST)
    assert stats(shard).lag == pytest.approx(shard.now() - PAST, abs=60)


def test_once_its_run_is_over_it_is_late_by_its_own_time(shard, lease):
    lease.settle(1, rest="ack")
    row = stats(shard)
    assert (row.length, row.waiting) == (1, 0)
    assert row.lag == pytest.approx(shard.now() - HOT_DUE, abs=60)


def test_the_numbers_of_a_queue_are_plain_json(app, shard, lease):
    app.redis().hset(f"{app.settings.namespace}:queues", "q", shard.shard.layout)
    metrics = app.metrics()["q"]
    assert (metrics.length, metrics.fresh, metrics.waiting, metrics.busy, metrics.claims) == (1, 1, 1, 2, 2)
    json.dumps(msgspec.structs.asdict(metrics), allow_nan=False)
    json.dumps(msgspec.to_builtins(stats(shard)), allow_nan=False)


def test_a_query_tells_that_it_waits_and_when_it_was_due(queries, lease):
    (hot,) = queries.fetch(["hot", "slow"])
    assert (hot.id, hot.payloads, hot.perform_in, hot.waits_for_own_run) == ("hot", ["second"], HOT_DUE, True)
    lease.settle(1, rest="ack")
    (hot,) = queries.fetch(["hot"])
    assert (hot.perform_in, hot.waits_for_own_run) == (HOT_DUE, False)


def test_ranges_by_time_have_it_at_its_own_time(queries, shard, lease):
    shard.push_all(("before", b"1", 1.0, HOT_DUE - 1), ("after", b"1", 1.0, HOT_DUE + 1), ("later", b"1", 1.0, FUTURE))

    def found(*bounds, **options):
        return [job.id for job in queries.range_by_perform_in(*bounds, **options)]

    assert found() == ["before", "hot", "after", "later"]
    assert found(limit=2) == ["before", "hot"]
    assert found(HOT_DUE, HOT_DUE) == found("-inf", HOT_DUE)[1:] == ["hot"]
    assert found(f"({HOT_DUE}") == ["after", "later"]
    assert found("-inf", f"({HOT_DUE}") == ["before"]
    assert found(HOT_DUE + 2) == ["later"]
    assert [job.id for job in queries.rev_range_by_perform_in(limit=3)] == ["later", "after", "hot"]
    assert [job.id for job in queries.rev_range_by_perform_in(HOT_DUE, "-inf")] == ["hot", "before"]
    assert {job.id for job in queries.range_by_retry_count()} == {"before", "hot", "after", "later"}
    assert [job.id for job in queries.find("h*")] == ["hot"]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_have_it_at_its_own_time_and_say_so(alone, shard, lease, limit):
    shard.push_all(("before", b"1", 1.0, HOT_DUE), ("after", b"1", 1.0, HOT_DUE + 1), ("later", b"1", 1.0, FUTURE))
    jobs = [job for page in pages(alone, "due", limit=limit) for job in page.jobs]
    assert [job.id for job in jobs] == ["before", "hot", "after", "later"]
    assert [job.at for job in jobs] == [HOT_DUE, HOT_DUE, HOT_DUE + 1, FUTURE]
    assert [job.waits_for_own_run for job in jobs] == [False, True, False, False]
    assert ids(alone.page("due", pattern="h*")) == ids(alone.page("due", pattern="hot")) == ["hot"]


def test_jobs_in_flight_are_those_of_all_claims_the_oldest_first(alone, lease):
    assert [job.id for job in alone.in_flight()] == ["hot", "slow"]
    assert [job.id for job in alone.in_flight(limit=1)] == ["hot"]
    lease.settle(2, rest="ack")
    assert [job.id for job in alone.in_flight()] == ["hot"]


def test_a_job_is_found_in_whichever_claim_it_is(alone, lease):
    (slow,) = alone.job("slow")
    assert (slow.where, slow.at, [payload.data for payload in slow.payloads]) == ("claim", PAST + 6, [b'"third"'])
    queued, claimed = alone.job("hot")
    assert (queued.where, queued.at, queued.waits_for_own_run) == ("queue", HOT_DUE, True)
    assert (claimed.where, claimed.at, claimed.waits_for_own_run) == ("claim", PAST, False)
    assert [payload.data for payload in claimed.payloads] == [b'"first"']
    assert alone.ahead("hot") is None, "it waits for no other job"


def test_what_no_claim_has_met_yet_waits_for_its_own_run_too(alone, shard):
    shard.push("hot", perform_in=PAST)
    shard.lease().claim()
    shard.push("hot", b"another", perform_in=HOT_DUE)
    assert [(place.where, place.waits_for_own_run) for place in alone.job("hot")] == [("queue", True), ("claim", False)]
    assert stats(shard).waiting == 0, "Redis notes it when a claim meets it"


def test_performing_it_now_changes_nothing(shard, lease):
    before = shard.dump()
    assert shard.actions.perform_now(["hot"]) == 0
    assert shard.dump() == before


def test_performing_all_now_does_not_go_round_those_that_wait(shard, lease, monkeypatch):
    shard.push_all(*((f"later-{number}", b"p", 1.0, FUTURE) for number in range(150)))
    shard.push_all(*((f"due-{number}", b"p", 1.0, PAST) for number in range(50)))
    calls = []
    run = shard.caller.run
    monkeypatch.setattr(shard.caller, "run", lambda call: calls.append(call.script) or run(call))
    assert shard.actions.perform_all_jobs_now() == 150
    assert calls == ["perform_now"] * math.ceil(150 / CHUNK)
    assert stats(shard).waiting == 1


@pytest.mark.parametrize("action", ["delete", "bury"])
def test_what_waits_can_be_taken_away_and_the_run_goes_on(shard, lease, action):
    assert getattr(shard.actions, action)(["hot"]) == 1
    row = stats(shard)
    assert (row.length, row.waiting, row.busy, row.morgue_length) == (0, 0, 2, int(action == "bury"))
    assert shard.names().isdisjoint({"behind", "due", "payloads"})
    assert lease.settle(1, rest="ack").acked == 1


def test_what_is_revived_of_it_waits_too(shard, lease):
    shard.actions.bury(["hot"])
    shard.push("hot", b'"fourth"', 4.0, HOT_DUE + 1)
    assert lease.claim_beside() == []
    assert shard.actions.morgue_queue_up(["hot"]) == 1
    row = stats(shard)
    assert (row.length, row.waiting, row.lag) == (1, 1, 0.0)


@pytest.mark.parametrize("text", [b"nan", b"soon", b"inf", b""])
def test_a_due_time_that_is_none_is_told_of_and_hides_no_other(app, alone, shard, lease, text):
    shard.push("other", perform_in=FUTURE)
    app.redis().hset(shard.key("behind"), "hot", text)
    assert "other" in [job.id for page in pages(alone, "due", limit=1) for job in page.jobs]
    json.dumps([msgspec.to_builtins(job.at) for job in alone.job("hot")], allow_nan=False)
    (met,) = {one.remedy for one in app.caller.met.now() if "behind" in one.key}
    assert met == f"HSET {shard.prefix.decode()}behind hot 0"


@pytest.mark.parametrize("key", ["asides", "aside:1", "behind"])
def test_keys_of_another_type_are_told_of(app, alone, shard, lease, key):
    app.redis().set(shard.key(key), "x")
    stats(shard)
    assert [one.key for one in app.caller.met.now()] == [f"{shard.prefix.decode()}{key}"]
    alone.page("due")
    alone.in_flight()


def test_previews_of_a_queue_meet_the_waiting_of_all_its_shards(app, previews: Previews, shards):
    for shard in shards:
        run_beside(shard, f"node-{shard.shard.index}")
    assert [job.at for job in previews.page("due").jobs] == [HOT_DUE] * 3
    assert len(previews.in_flight()) == 6
    assert [job.at for page in pages(previews, "due", limit=1) for job in page.jobs] == [HOT_DUE] * 3


def test_a_record_that_is_none_is_told_of_with_the_key_of_its_own_claim(app, alone, shard, lease):
    app.redis().lset(shard.key("aside:1"), 1, b"junk")
    assert [job.id for job in alone.in_flight()] == ["slow"]
    (met,) = app.caller.met.now()
    assert met.remedy == f"UNLINK {shard.prefix.decode()}aside:1", "and not of the newest, which is well"
