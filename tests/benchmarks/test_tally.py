from types import SimpleNamespace

import pytest

from benchmarks import measures
from benchmarks.contender import ContenderFailed
from benchmarks.tally import Tally


@pytest.fixture
def tally():
    made = Tally()
    yield made
    made.close()


def word(at, done, latencies=()):
    return {"t": at, "done": done, "performs": 0, "latencies": list(latencies)}


def test_rate_is_that_of_the_middle_not_of_slow_starts_and_ends(tally):
    for at, done in ((0.0, 10), (5.0, 10), *((5.0 + n, 100) for n in range(1, 11)), (40.0, 10)):
        tally.add(word(at, done))
    assert tally.rate() == pytest.approx(100, rel=0.01)


def test_words_of_processes_are_ordered_by_their_time_not_by_their_arrival(tally):
    for at in (4, 1, 3, 2, 9, 7, 8, 6, 5, 10):
        tally.add(word(float(at), 50))
    assert tally.rate() == pytest.approx(50, rel=0.01)


def test_percentiles_are_milliseconds_without_the_cold_ones(tally):
    tally.add(word(0.0, 10, [9.0] * 10 + [0.001] * 90))
    assert tally.latency(skip=0.1) == pytest.approx((1.0, 1.0, 1.0))
    assert tally.latency(skip=0).most == pytest.approx(9_000)


def test_no_job_done_is_a_failure_not_a_rate_of_zero(tally):
    with pytest.raises(ContenderFailed, match="did no job"):
        tally.rate()


def test_a_batch_lasts_from_its_push_to_its_last_word(tally):
    for at in (12.0, 11.0):
        tally.add(word(at, 10), at)
    assert tally.seconds() == 1
    assert tally.seconds(since=10.0) == 2
    assert tally.processes == 2


def test_reset_forgets(tally):
    tally.add(word(0.0, 10, [0.5]))
    tally.reset()
    assert tally.done == 0
    assert tally.seconds() == 0


@pytest.mark.parametrize(
    ("late", "rate", "within"), [(3.5, 200, 0.2), (9.5, 100, 0.1)], ids=["together", "one after the other"]
)
def test_rate_is_that_of_all_processes_while_they_work_together(tally, late, rate, within):
    for at in range(10):
        tally.add(word(float(at), 100), "early")
        tally.add(word(at + late, 100), "late")
    assert tally.rate() == pytest.approx(rate, rel=within)


def test_jobs_that_were_not_done_are_a_failure_not_a_rate_of_the_others():
    run = SimpleNamespace(
        start_workers=lambda processes: None,
        wait_for=lambda jobs, limit: False,
        tally=SimpleNamespace(done=90, rate=lambda: 1_000.0),
    )
    with pytest.raises(ContenderFailed, match="90 of 100 jobs"):
        measures._work(run, 1, 100, 5.0)
