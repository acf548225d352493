import json

import pytest

from benchmarks import rows
from benchmarks.contender import Contender, ContenderFailed
from benchmarks.peers import __main__ as peers
from benchmarks.peers.standings import SINGLE_BY_BARE, Standing, as_json, draw, print_all, promises

FLOOR = {"pipelined, three writes": [50.0], SINGLE_BY_BARE: [0.9]}


@pytest.fixture(autouse=True)
def known_machine(monkeypatch):
    monkeypatch.setattr(rows, "shape", lambda: "a machine")


def standing(name, **figures):
    contender = Contender(name=name, command=("true",), check=("true",), tuning="tuned")
    return Standing(contender, "1.0", figures={figure: [value] for figure, value in figures.items()})


@pytest.fixture
def field():
    absent = standing("BullMQ")
    absent.missing = "no node here"
    latencies = {"idle p50": 1.0, "idle p99": 2.0}
    return [
        standing("Lowkiq", **{"1×5": 100.0, "bulk": 5.0, "bytes": 183.0, **latencies}),
        standing("Sidekiq", **{"1×5": 10.0, "bulk": 4.0}),
        standing("Huey", **{"1×5": 4.0}),
        standing("RQ", **{"1×5": 1.0, **latencies}),
        absent,
    ]


def test_promises_are_against_the_best_of_python_and_sidekiq(field):
    holds = {row.label: (row.median, row.holds) for row in promises(field, FLOOR)}
    assert holds["blank jobs by Huey's"] == (25, False)
    assert holds["blank jobs by Sidekiq's"] == (10, True)
    assert holds["bulk enqueues by Sidekiq's"] == (1.25, True)
    assert holds["blank jobs by redis-py's pipelined EVALSHA"] == (2, True)
    assert holds[SINGLE_BY_BARE] == (0.9, True)
    assert not any("BullMQ" in label for label in holds)


def test_tables_say_who_could_not_run_and_why(field, capsys):
    assert print_all("a machine", field, FLOOR) == 1
    out = capsys.readouterr().out
    assert "BullMQ 1.0: could not run: no node here" in out
    assert "Huey 1.0: tuned" in out


def test_json_has_every_contender(field):
    said = json.loads(json.dumps(as_json("a machine", field, FLOOR)))
    assert [each["name"] for each in said["contenders"]] == ["Lowkiq", "Sidekiq", "Huey", "RQ", "BullMQ"]


def test_plots_are_drawn_of_what_there_is(field, tmp_path):
    pytest.importorskip("matplotlib", reason="make bench installs it")
    draw(tmp_path / "images", "a machine", field)
    names = {path.name for path in (tmp_path / "images").iterdir()}
    assert names == {f"bench-{name}.png" for name in ("throughput", "enqueue", "latency", "memory")}
    assert all((tmp_path / "images" / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_a_contender_that_is_not_there_says_why():
    gone = Contender(name="Gone", command=("/no/such/program",), check=("/no/such/program", "--version"))
    with pytest.raises(ContenderFailed, match="No such file"):
        gone.version()


def test_only_takes_names_and_keeps_ours():
    assert [each.name for each in peers.chosen("celery,rq")] == ["Lowkiq", "Celery", "RQ"]
    assert len(peers.chosen("")) == 13
    with pytest.raises(SystemExit, match="nobody is named kafka"):
        peers.chosen("kafka")
