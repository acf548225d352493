"""History: samples of queues in lists of equal steps, by Redis's clock."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from lowkiq.admin.beats.health import BEAT_INTERVAL
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.past import history
from lowkiq.admin.past.history import SPANS, TOTAL, read_history, record, take_turn
from lowkiq.node.health.housekeeping import Housekeeping
from lowkiq.node.runtime import Runtime
from lowkiq.queue import keys
from lowkiq.queue.call import Call
from lowkiq.queue.layouts import opened
from tests.queue.shard_driver import PAST, ShardDriver
from tests.support import wait_until

#: A step so long that no test meets its end.
AGE = 10**9


def row(number=0, **fields):
    """Metrics that all have this value."""
    return QueueMetrics(**(dict.fromkeys(QueueMetrics.__struct_fields__, number) | {"lag": float(number)} | fields))


def step_begin(redis, step=AGE):
    return redis.time()[0] // step * step


@pytest.fixture
def redis(app):
    return app.redis()


@pytest.fixture
def namespace(app):
    return app.settings.namespace


@pytest.fixture
def series(namespace):
    """What the keys of a series of the test's own begin with."""
    return keys.history(namespace, "series")


@pytest.fixture
def add(app, series):
    """Adds a sample by the script, to spans of the test's choice: name → (step, records that are kept)."""

    def add(sample, **spans):
        words = [word for name, (step, keep) in spans.items() for word in (name, step, keep)]
        app.caller.run(Call("record", [series], [len(spans), *words, " ".join(map(str, sample))], bool))

    return add


@pytest.fixture
def records(redis, series):
    """What the script has written of a span: when, and nine numbers."""
    return lambda span: [list(map(float, row.split())) for row in redis.lrange(f"{series}{span}", 0, -1)]


@pytest.fixture
def write_record(redis, series):
    """Writes a record by hand."""
    return lambda span, at, number: redis.rpush(f"{series}{span}", " ".join(map(str, [at, *[number] * 9])))


@pytest.fixture
def keep_house(app):
    """Does a node's housekeeping once."""
    return Housekeeping(Runtime(node="a", settings=app.settings, caller=app.caller, fatal=pytest.fail))


def test_a_sample_is_found_in_every_span(app, namespace):
    metrics = QueueMetrics(
        length=7, fresh=4, retries=3, waiting=1, busy=2, claims=1, morgue_length=1, lag=1.5, processed=10, failed=11,
        pushed=12, merged=13,
    )  # fmt: skip
    record(app.caller, namespace, {"orders": metrics})
    for span, (_, step) in SPANS.items():
        (point,) = read_history(app.caller, namespace, "orders", span)
        assert point.at == point.at // step * step
        assert (point.length, point.retries, point.busy, point.morgue_length, point.lag) == (7, 3, 2, 1, 1.5)
        assert (point.processed, point.failed, point.pushed, point.merged) == (10, 11, 12, 13)


def test_a_sample_of_many_shards_has_all_that_they_hold_and_have_done(app, namespace, keep_house):
    """Of those that hold nothing only the counters are read."""
    shards = [ShardDriver(app, index=index, shards_count=200) for index in range(200)]
    opened(app.caller, namespace, {"q": 200})
    for index, shard in enumerate(shards[::9]):
        lease = shard.lease()
        shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("b", b"y", 1.0, PAST))
        lease.claim()
        lease.ack("a", "b")
        if index % 4 == 0:
            shard.push("c", perform_in=PAST)
        if index % 4 == 1:
            shard.push("d", perform_in=PAST)
            lease.claim()
    keep_house()
    (point,) = read_history(app.caller, namespace, "q", "5m")
    known = app.metrics()["q"]
    assert (
        (point.processed, point.pushed, point.merged) == (known.processed, known.pushed, known.merged) == (46, 81, 23)
    )
    assert (point.length, point.busy) == (known.length, known.busy) == (6, 6)
    assert point.lag > 0


def test_no_span_has_more_points_than_a_chart_can_show():
    for seconds, step in SPANS.values():
        assert seconds % step == 0
        assert 60 <= seconds // step <= 365


def test_within_a_step_gauges_keep_the_highest_and_counters_the_last(add, records, redis):
    for numbers in [(5, 1, 9, 0, 2.5, 10, 10, 10, 10), (3, 4, 10, 0, 10.25, 12, 9, 0, 11)]:
        add(numbers, long=(AGE, 10))
    ((at, *numbers),) = records("long")
    assert numbers == [5, 4, 10, 0, 10.25, 12, 9, 0, 11]
    assert at == step_begin(redis)


def test_gauges_are_compared_as_numbers(add, records):
    for number in (9, 10, 2, 1.25):
        add([number] * 9, long=(AGE, 10))
    assert records("long")[0][1:] == [10] * 5 + [1.25] * 4


def test_repeating_a_record_changes_nothing(add, records):
    for _ in range(3):
        add([1, 2, 3, 4, 5, 6, 7, 8, 9], long=(AGE, 10), shorter=(AGE // 2, 10))
        assert [row[1:] for row in records("long")] == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]
        assert [row[1:] for row in records("shorter")] == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]


def test_each_step_has_a_record_of_its_own(add, records):
    """Real steps, of a second: each begins with what is then, not with the highest of the one before."""
    number = itertools.count(100, -1)

    def has_three():
        add([next(number)] * 9, second=(1, 10), long=(AGE, 10))
        return len(records("second")) >= 3

    wait_until(has_three)
    rows = records("second")
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    assert rows[0][1] == 100 > rows[1][1] > rows[2][1]
    assert [row[1] for row in records("long")] == [100]


@pytest.mark.parametrize("ago", [1, 7])
def test_a_record_whose_step_is_over_is_left_alone_and_a_clock_gap_leaves_a_gap(add, records, write_record, redis, ago):
    start = step_begin(redis)
    write_record("long", start - ago * AGE, 1)
    add([5] * 9, long=(AGE, 10))
    assert records("long") == [[start - ago * AGE] + [1] * 9, [start] + [5] * 9]


def test_when_the_clock_was_set_back_history_goes_on_from_there(add, records, write_record, redis):
    """The records of a time to come are dropped: there is one for each step."""
    start = step_begin(redis)
    for number in range(3):
        write_record("long", start + number * AGE, number + 1)
    add([5] * 9, long=(AGE, 10))
    assert records("long") == [[start] + [5] * 9]


def test_lists_are_bounded_even_if_they_were_not(add, records, write_record, redis):
    start = step_begin(redis)
    for number in range(30):
        write_record("long", start - (30 - number) * AGE, number)
    add([99] * 9, long=(AGE, 10))
    assert [row[1] for row in records("long")] == [*range(21, 30), 99]


def test_lists_expire_when_all_of_them_is_too_old(app, namespace, redis):
    record(app.caller, namespace, {"orders": row()})
    for queue in ("orders", TOTAL):
        for span, (seconds, _) in SPANS.items():
            ttl = redis.ttl(f"{keys.history(namespace, queue)}{span}")
            assert seconds - 60 <= ttl <= seconds


def test_the_total_is_the_sum_and_its_lag_the_highest(app, namespace):
    record(app.caller, namespace, {"a": row(1, lag=2.0), "b": row(10, lag=7.5), "c": row(100, lag=0.0)})
    (point,) = read_history(app.caller, namespace, TOTAL, "5m")
    assert (point.length, point.retries, point.busy, point.morgue_length, point.lag) == (111, 111, 111, 111, 7.5)
    assert (point.processed, point.failed, point.pushed, point.merged) == (111,) * 4


def test_without_queues_the_total_is_zero_and_large_numbers_are_kept_exactly(app, namespace):
    record(app.caller, namespace, {})
    (point,) = read_history(app.caller, namespace, TOTAL, "5m")
    assert (point.length, point.lag, point.pushed) == (0, 0.0, 0)
    record(app.caller, namespace, {"a": row(2**53 + 1, lag=123456789.125)})
    (point,) = read_history(app.caller, namespace, "a", "30d")
    assert (point.length, point.processed, point.lag) == (2**53 + 1, 2**53 + 1, 123456789.125)


def test_many_queues_are_recorded_each_with_its_own_numbers(app, namespace):
    count = 2 * history.SERIES_A_CALL + 1
    record(app.caller, namespace, {f"q{number}": row(number) for number in range(count)})
    for number in (0, history.SERIES_A_CALL - 2, history.SERIES_A_CALL - 1, history.SERIES_A_CALL, count - 1):
        assert [p.length for p in read_history(app.caller, namespace, f"q{number}", "1h")] == [number]
    assert read_history(app.caller, namespace, TOTAL, "1h")[0].length == sum(range(count))


def test_queues_do_not_mix_with_others_whose_names_begin_alike(app, namespace):
    record(app.caller, namespace, {"a": row(1), "a:1h": row(2), "a:": row(3)})
    assert [read_history(app.caller, namespace, queue, "1h")[0].length for queue in ("a", "a:1h", "a:")] == [1, 2, 3]


@pytest.mark.parametrize(("span", "lengths"), [("5m", [3, 4, 5]), ("1h", [1, 2, 3, 4, 5])])
def test_only_points_within_the_span_are_read_the_oldest_first(app, namespace, redis, write_record, span, lengths):
    for length, age in enumerate((400, 310, 290, 100, 0), 1):
        write_record(span, redis.time()[0] - age, length)
    assert [point.length for point in read_history(app.caller, namespace, "series", span)] == lengths


def test_of_many_nodes_only_one_takes_a_turn(app, namespace):
    with ThreadPoolExecutor(8) as threads:
        turns = list(threads.map(lambda n: take_turn(app.caller, namespace, f"node-{n}"), range(50)))
    assert turns.count(True) == 1
    assert not take_turn(app.caller, namespace, f"node-{turns.index(True)}")


def test_the_next_turn_comes_before_the_next_beat(app, namespace, redis):
    """Else a node that is alone would miss every other one."""
    assert take_turn(app.caller, namespace, "a")
    assert 0 < redis.pttl(keys.history_turn(namespace)) < BEAT_INTERVAL * 1000
    redis.delete(keys.history_turn(namespace))
    assert take_turn(app.caller, namespace, "b")


def test_a_recorder_samples_every_queue_when_it_is_its_turn(app, namespace, redis, keep_house):
    work = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    other = app.worker(queue_name="other", shards_count=3)(lambda _: None)
    work.perform_async([{"id": n, "perform_in": PAST} for n in range(5)])
    other.perform_async([{"id": n} for n in range(4)])
    lease = ShardDriver(app).lease()
    lease.claim(limit=2)
    lease.fail("0", delay=-1)
    keep_house()
    (point,) = read_history(app.caller, namespace, "q", "5m")
    assert (point.length, point.retries, point.busy, point.pushed, point.failed) == (4, 1, 1, 5, 1)
    assert point.lag == pytest.approx(redis.time()[0] - PAST, abs=60)
    assert [p.length for p in read_history(app.caller, namespace, "other", "5m")] == [4]
    assert [p.length for p in read_history(app.caller, namespace, TOTAL, "5m")] == [8]


def test_a_recorder_whose_turn_it_is_not_samples_nothing(app, namespace, keep_house):
    assert take_turn(app.caller, namespace, "another")
    keep_house()
    assert read_history(app.caller, namespace, TOTAL, "5m") == []


def test_a_queue_that_came_later_has_points_from_then_on(app, namespace, redis, keep_house):
    keep_house()
    app.worker(queue_name="q", shards_count=1)(lambda _: None).perform_async([{"id": 1}])
    redis.delete(keys.history_turn(namespace))
    keep_house()
    assert [point.length for point in read_history(app.caller, namespace, "q", "30d")] == [1]


def test_a_history_is_of_one_queue_and_one_namespace(app, namespace):
    record(app.caller, namespace, {"q": row(1)})
    assert read_history(app.caller, f"{namespace}x", "q", "1h") == []
    assert read_history(app.caller, namespace, "ghost", "1h") == []


def test_a_full_history_of_a_queue_is_small(app, namespace, redis):
    """About 90 KB, as its docstring says."""
    now = redis.time()[0]
    size = 0
    for span, (seconds, step) in SPANS.items():
        key = f"{keys.history(namespace, 'q')}{span}"
        values = "1234567 123456 12345 123456 12345.123 1234567890 123456789 1234567890 123456789"
        redis.rpush(key, *(f"{now - n * step} {values}" for n in range(seconds // step)))
        size += redis.memory_usage(key)
    assert size < 120_000


def test_a_key_of_another_kind_is_left_and_hides_no_other(add, records, redis, series):
    redis.set(f"{series}long", "x")
    add([1] * 9, long=(AGE, 10), x=(5, 3))
    assert redis.get(f"{series}long") == b"x"
    assert len(records("x")) == 1


@pytest.mark.parametrize("last", ["", "<b>", "nan nan", "inf 1", "9" * 400, "x 1 2 3"])
def test_a_record_of_somebody_else_is_followed_by_ours(add, records, redis, series, last):
    redis.rpush(f"{series}x", last)
    add([1] * 9, x=(5, 3))
    assert list(map(float, redis.lindex(f"{series}x", -1).split()))[1:] == [1] * 9


@pytest.mark.parametrize("step", [7, 3_600, 14_400])
def test_steps_begin_at_multiples_of_the_step(add, records, redis, step):
    before = step_begin(redis, step)
    add([1] * 9, x=(step, 3))
    assert before <= records("x")[0][0] <= step_begin(redis, step)
    assert records("x")[0][0] % step == 0


def test_a_redis_that_has_lost_all_is_looked_at_and_declared_for_anew_by_each_node(app, namespace):
    """Whose turn it was, or not: what recurs is declared by all whose code has it."""
    declared = []
    nodes = [
        Housekeeping(
            Runtime(node=name, settings=app.settings, caller=app.caller, fatal=pytest.fail),
            declare=lambda name=name: declared.append(name),
        )
        for name in "ab"
    ]
    ShardDriver(app).push("1")
    opened(app.caller, namespace, {"q": 1})
    for node in nodes * 2:
        node()
    assert declared == []
    app.redis().flushall()
    for node in nodes * 2:
        node()
    assert declared == ["a", "b"]
    assert [one.kind for one in app.nodes().alerts if one.kind == "emptied"] == ["emptied"]
