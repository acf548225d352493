"""Statistics: sums of queues and days, added by nodes and kept for a year."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as Away

from lowkiq import Lowkiq, clock
from lowkiq.admin.past import statistics
from lowkiq.admin.past.durations import BOUNDS
from lowkiq.admin.past.statistics import Addition, Times, add, date_of, day_of, read_statistics, read_totals, usual
from lowkiq.job import Job
from lowkiq.node.counts.times import NodeTimes, Ran
from lowkiq.queue import keys

#: A second before and after midnight, long ago, and the days' numbers.
BEFORE, AFTER = 1_700_006_399.0, 1_700_006_401.0
FIRST, SECOND = day_of(BEFORE), day_of(AFTER)


@pytest.fixture
def namespace(app: Lowkiq) -> str:
    return app.settings.namespace


def times_of(waits: dict[float, int], runs: dict[float, int]) -> Times:
    times = Times.none()
    for durations, lengths in zip(times, (waits, runs), strict=True):
        for seconds, count in lengths.items():
            durations.add(seconds, count)
    return times


def test_what_several_nodes_add_is_their_sum_and_a_repeated_addition_changes_nothing(
    app: Lowkiq, namespace: str
) -> None:
    ours = [Addition("q", FIRST, times_of({1.0: 3}, {0.02: 2, BOUNDS[-1] * 2: 1}))]
    theirs = [Addition("q", FIRST, times_of({5.0: 1, 0.0: 4}, {0.02: 5}))]
    assert add(app.caller, namespace, "one", 1, ours)
    once = app.redis().get(keys.times(namespace, "q", FIRST))
    assert not add(app.caller, namespace, "one", 1, ours)
    assert app.redis().get(keys.times(namespace, "q", FIRST)) == once
    assert add(app.caller, namespace, "two", 1, theirs)
    (found,) = read_statistics(app.caller, namespace, "q", 1, until=FIRST)
    together = times_of({1.0: 3, 5.0: 1, 0.0: 4}, {0.02: 7, BOUNDS[-1] * 2: 1})
    assert found.day == date_of(FIRST)
    assert (found.wait, found.run) == tuple(map(statistics.Lengths.of, together))
    assert app.redis().ttl(keys.times(namespace, "q", FIRST)) == pytest.approx(365 * 86_400, abs=60)


def test_totals_go_on_over_days_and_usual_times_are_of_today_and_yesterday(app: Lowkiq, namespace: str) -> None:
    today = day_of(app.redis().time()[0])
    rows = [
        Addition("q", today - 2, times_of({}, {100.0: 10})),
        Addition("q", today - 1, times_of({}, {1.0: 97})),
        Addition("q", today, times_of({}, {1.0: 3, 2.0: 2})),
        Addition("rare", today, times_of({}, {1.0: 3})),
    ]
    add(app.caller, namespace, "one", 1, rows)
    assert read_totals(app.caller, namespace, ["q", "none"])["q"].runs.count == 112
    assert usual(app.caller, namespace, ["q", "rare", "none"]) == {"q": pytest.approx(2.0, rel=0.05)}
    assert [one.day for one in read_statistics(app.caller, namespace, "q", 30)] == [
        date_of(today - 2 + n) for n in range(3)
    ]


def test_a_claim_before_midnight_whose_job_ends_after_it(app: Lowkiq, namespace: str) -> None:
    times = NodeTimes()
    times.of("q").note(BEFORE, 70.0, [Ran([Job("1", [], (0.0,), BEFORE - 3)], 70.0, 2.0)])
    times.flush(app.caller, namespace, "one")
    first, second = read_statistics(app.caller, namespace, "q", 2, until=SECOND)
    assert (first.wait.count, first.run.count, second.wait.count, second.run.count) == (1, 0, 0, 1)
    assert (first.wait.mean, second.run.mean) == (3.0, 2.0)


def test_a_flush_whose_reply_is_lost_is_repeated_as_it_was(app: Lowkiq, namespace: str, monkeypatch: Any) -> None:
    times, job = NodeTimes(), Job("1", [], (0.0,), BEFORE - 3)
    real, calls = statistics.add, list[int]()

    def losing(*arguments: Any) -> bool:
        done = real(*arguments)
        calls.append(arguments[3])
        if len(calls) == 1:
            raise Away("the reply was lost")
        return done

    monkeypatch.setattr("lowkiq.node.counts.times.add", losing)
    monkeypatch.setattr("lowkiq.node.counts.times.redis_time", lambda _: BEFORE - 70 + clock.monotonic())
    times.of("q").note(BEFORE, 70.0, [Ran([job], 70.0, 0.5)])
    with pytest.raises(Away):
        times.flush(app.caller, namespace, "one")
    times.of("q").note(BEFORE, 70.0, [Ran([job], 70.0, 0.5)])
    times.flush(app.caller, namespace, "one")
    times.flush(app.caller, namespace, "one")
    assert calls == [1, 1, 2]
    (found,) = read_statistics(app.caller, namespace, "q", 1, until=FIRST)
    assert (found.wait.count, found.run.count) == (2, 2)


@pytest.mark.parametrize(
    "junk", ["x", "1 1 1 5 1", "1 1 1 5 1|1 nan 1 5 1", "|", "9" * 20_000, "1 1 1 999 1|0 0 0", None]
)
def test_what_is_no_sum_is_told_of_and_begins_anew(app: Lowkiq, namespace: str, junk: str | None) -> None:
    key = keys.times(namespace, "q", FIRST)
    app.redis().rpush(key, "x") if junk is None else app.redis().set(key, junk)
    app.redis().rpush(keys.added(namespace, "one"), "x")
    assert read_statistics(app.caller, namespace, "q", 1, until=FIRST) == []
    assert key in str(app.caller.met.now())
    add(app.caller, namespace, "one", 1, [Addition("q", FIRST, times_of({1.0: 1}, {2.0: 1}))])
    (found,) = read_statistics(app.caller, namespace, "q", 1, until=FIRST)
    assert (found.run.count, app.caller.met.now()) == (1, [])
