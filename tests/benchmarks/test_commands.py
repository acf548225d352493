"""The benchmarks run at their smallest; nothing here says how fast."""

import json

import pytest

from benchmarks import __main__ as bench
from benchmarks.contender import lowkiq
from benchmarks.measures import Pace, hot_ids, probe
from benchmarks.peers import __main__ as peers
from benchmarks.scale import __main__ as scale
from benchmarks.scale import steps

#: Many processes start, one after another: slow beside others.
pytestmark = [pytest.mark.rare, pytest.mark.timeout(600)]


def test_every_row_of_make_bench_has_a_figure(redis_server, capsys):
    bench.main(["--rounds", "1", "--seconds", "0.02", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert len(said["rows"]) == len(bench.rows({name: [1.0] for name in FIGURES}))
    # In so short a time an idle node may use less than a tick of its processor.
    assert not [row for row in said["rows"] if not row["median"] > 0 and row["what"] != "  the node itself"]


FIGURES = (
    "1×5", "2×5", "batch 100", "hot", "merged", "single", "bulk", "single by bare", "rung", "one write",
    "three writes", "round trips", "idle p50", "idle p99", "half rate", "half p50", "half p99", "io", "cpu", "bytes",
    "redis", "commands", "rss", "mixed p50", "mixed p99", "mixed most", "beside p50", "beside p99", "lone redis",
    "lone commands", "bulk to 10", "bulk to 1000", "bulk to 10000", "idle redis", "idle node", "idle commands",
    "tasks", "awaited", "pause of list", "pause of singles", "pause of nothing",
)  # fmt: skip


def test_hot_ids_are_merged_before_they_run(redis_server):
    pace = Pace(0.02)
    probe(lowkiq(), pace)
    _, merged = hot_ids(lowkiq(), pace)
    assert merged > 1


def test_peers_measures_lowkiq_and_tells_of_those_that_are_missing(redis_server, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(peers, "MEASURES", {"two processes": peers.MEASURES["two processes"]})
    monkeypatch.setattr("benchmarks.peers.catalogue.HOME", tmp_path)
    peers.main(["--only", "celery", "--rounds", "1", "--seconds", "0.02", "--images", str(tmp_path), "--json"])
    ours, celery = json.loads(capsys.readouterr().out)["contenders"]
    assert len(ours["rounds"]["2×5"]) == 1
    assert "No such file" in celery["missing"]
    assert not celery["rounds"]


def test_scale_prints_a_row_for_everything_that_grows_and_draws_it(redis_server, monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="make bench installs it")
    monkeypatch.setattr(steps, "WATCHED", 1.0)
    monkeypatch.setattr(scale, "NODES", (1,))
    monkeypatch.setattr(scale, "SHARDS", (5,))
    scale.main(["--rounds", "1", "--most", "100", "--images", str(tmp_path), "--json"])
    labels = [row["what"] for row in json.loads(capsys.readouterr().out)["rows"]]
    for name in ("shards of a node", "queued jobs", "payloads of one id", "bytes a payload", "nodes", "idle node"):
        assert any(name in label for label in labels)
    assert (tmp_path / "bench-scale.png").exists()
