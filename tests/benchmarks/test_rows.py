import json

import pytest

from benchmarks import rows
from benchmarks.rows import Row, ratios, show


@pytest.fixture(autouse=True)
def known_machine(monkeypatch):
    monkeypatch.setattr(rows, "shape", lambda: "a machine")


def test_a_promise_is_held_by_the_median():
    assert Row("rate", [1, 5, 9], least=5).holds is True
    assert Row("rate", [1, 5, 9], least=6).holds is False
    assert Row("time", [1, 5, 9], most=5).holds is True
    assert Row("time", [1, 5, 9], most=4).holds is False
    assert Row("figure", [1]).holds is None


def test_ratios_are_of_one_round_each():
    assert ratios([2, 30], [1, 10]) == [2, 3]


@pytest.mark.parametrize(("least", "code"), [(5, 0), (6, 1)])
def test_a_missed_promise_is_shown_and_exits_1(capsys, least, code):
    assert show("Lowkiq", [Row("rate", [5.0], least=least), Row("other", [1.0])]) == code
    assert ("missed" if code else "holds") in capsys.readouterr().out


def test_json_has_every_round(capsys):
    show("Lowkiq", [Row("rate", [5.0, 7.0, 6.0], least=6)], as_json=True)
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row == {"what": "rate", "median": 6.0, "rounds": [5.0, 7.0, 6.0], "promised": "≥ 6", "holds": True}
