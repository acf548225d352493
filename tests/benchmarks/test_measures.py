from types import SimpleNamespace

import pytest

from benchmarks import measures
from benchmarks.contender import ContenderFailed


def test_jobs_that_were_not_done_are_a_failure_not_a_rate_of_the_others():
    run = SimpleNamespace(
        start_workers=lambda processes: None,
        wait_for=lambda jobs, limit: False,
        tally=SimpleNamespace(done=90, rate=lambda: 1_000.0),
    )
    with pytest.raises(ContenderFailed, match="90 of 100 jobs"):
        measures._work(run, 1, 100, 5.0)
