"""The table of mutants does not rot: each still has its place, and tests that are there. `make mutants` plays them."""

from __future__ import annotations

import functools
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.mutation.patching import Functions
from tests.mutation.table import ROOT, Mutant, once, read, read_all


@functools.cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text()


def test_each_mutant_has_one_place_and_tests_that_are_there() -> None:
    mutants = read_all()
    assert len(mutants) >= 150
    assert [name for name, count in Counter(one.says for one in mutants).items() if count > 1] == []
    for one in mutants:
        assert one.before != one.after and one.tests, one.says
        once(text_of(one.file), one.before, one.after, one.file)
        for test in one.tests:
            file, _, name = test.partition("::")
            assert f"def {name or 'test'}" in text_of(file), f"{one.says}: there is no {test}"


def test_a_table_is_read_as_it_is_written() -> None:
    text = "@ a.py t.py\n\nforgets\n-     x()\n-\n- y()\n\n@ b.py t.py\nturns\n  u.py::test_u\n- a\n+ b\n"
    assert list(read("room", text)) == [
        Mutant("room", "forgets", "a.py", "    x()\n\ny()", "", ("t.py",)),
        Mutant("room", "turns", "b.py", "a", "b", ("u.py::test_u",)),
    ]
    with pytest.raises(ValueError, match="what is"):
        list(read("room", "@ a.py t.py\n\nforgets\nwhat\n"))
    with pytest.raises(ValueError, match="is 2 times in"):
        once("x x", "x", "y", "a.py")


def test_a_function_is_given_its_mistake_wherever_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from lowkiq.handlers import retries

    before = retries.loggable(["a"])
    of_module = retries.loggable
    code = of_module.__code__
    file = "lowkiq/handlers/retries.py"
    mistake = Mutant("", "names nobody", file, "for id in list(ids)[:LOGGED_IDS]]", "for id in list(ids)[:0]]", ())
    try:
        Functions().patch(mistake)
        assert (before, of_module(["a"])) == (["a"], [])
    finally:
        of_module.__code__ = code
    elsewhere = SimpleNamespace(path=ROOT / file, source=lambda: text_of(file), says="nothing")
    with pytest.raises(ValueError, match="it changes no function"):
        Functions().patch(elsewhere)  # type: ignore[arg-type]
