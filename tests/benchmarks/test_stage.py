import io
import json
import sys

import pytest

from benchmarks.peers.apps import stage


@pytest.fixture
def told(monkeypatch):
    """Runs commands through the producer's steps: what is enqueued in calls of many, singly, and the answers."""

    def tell(*commands):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(command) + "\n" for command in commands)))
        many, one, answers = [], [], []
        for step in stage._steps():
            kind = {list: many, tuple: one, dict: answers}.get(type(step))
            if kind is not None:
                kind.append(step)
        return many, one, answers

    return tell


def test_bulk_enqueues_so_many_with_ids_that_differ_between_commands(told):
    many, _, answers = told({"do": "bulk", "jobs": 15_000}, {"do": "bulk", "jobs": 3})
    ids = [identity for call in many for identity, _ in call]
    assert [len(call) for call in many] == [10_000, 5_000, 3]
    assert len(set(ids)) == 15_003
    assert [answer["jobs"] for answer in answers] == [15_000, 3]


def test_small_jobs_have_ids_and_payloads_of_ten_bytes_as_json(told):
    (call,), _, _ = told({"do": "small", "jobs": 5})
    assert {len(identity) for identity, _ in call} == {10}
    assert {len(json.dumps(payload)) for _, payload in call} == {10}


def test_hot_gives_nine_tenths_of_the_pushes_to_a_hundredth_of_the_ids(told):
    many, _, _ = told({"do": "hot", "jobs": 20_000})
    ids = [identity for call in many for identity, _ in call]
    assert 0.88 < sum(int(identity) < 20 for identity in ids) / len(ids) < 0.92


def test_one_id_gets_all(told):
    many, _, _ = told({"do": "one id", "jobs": 100})
    assert {identity for call in many for identity, _ in call} == {"0" * 10}


def test_a_mixed_load_is_the_same_each_time_and_keeps_its_rate_and_its_part_of_slow_ones(told, monkeypatch):
    clock = iter(n / 1000 for n in range(100_000))
    monkeypatch.setattr(stage.time, "monotonic", lambda: next(clock))
    mixed = {"do": "mixed", "rate": 300, "seconds": 20, "slow": 10}
    _, first, (answer,) = told(mixed)
    _, second, _ = told(mixed)
    sleeps = [payload["sleep"] for _, payload in first]
    assert sleeps == [payload["sleep"] for _, payload in second]
    assert set(sleeps) == {stage.QUICK, stage.SLOW}
    assert 5_500 < len(sleeps) == answer["jobs"] < 6_500
    assert 0.005 < sleeps.count(stage.SLOW) / len(sleeps) < 0.015


def test_one_job_sleeps_for_as_long_as_is_asked(told):
    _, ((_, payload),), _ = told({"do": "sleep", "seconds": 10})
    assert payload["sleep"] == 10


@pytest.mark.parametrize("rate", [500, 20_000])
def test_paced_never_runs_ahead_of_its_rate_and_stamps_some(told, monkeypatch, rate):
    clock = iter(n / 1000 for n in range(10_000))  # a millisecond at each look
    monkeypatch.setattr(stage.time, "monotonic", lambda: next(clock))
    many, one, (answer,) = told({"do": "paced", "rate": rate, "seconds": 0.5})
    payloads = [payload for _, payload in (*one, *(job for call in many for job in call))]
    assert 0.9 * rate * 0.5 < len(payloads) <= rate * 0.5
    assert answer["jobs"] == len(payloads)
    assert any("at" in payload for payload in payloads)
