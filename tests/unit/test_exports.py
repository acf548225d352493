"""The names of the package, which are handed on when they are asked for."""

from __future__ import annotations

import importlib
import pickle
import pydoc
import subprocess
import sys

import pytest

import lowkiq


def test_every_name_is_the_one_of_its_module_and_listed() -> None:
    assert set(lowkiq.__all__) | {"__version__"} <= set(dir(lowkiq))
    for name in lowkiq.__all__:
        value = getattr(lowkiq, name)
        assert getattr(importlib.import_module(value.__module__), name) is value


def test_other_names_are_missing() -> None:
    with pytest.raises(AttributeError, match="module 'lowkiq' has no attribute 'Lowkick'"):
        lowkiq.Lowkick  # noqa: B018
    with pytest.raises(ImportError):
        exec("from lowkiq import Lowkick")


def test_they_are_pickled_and_explained() -> None:
    assert pickle.loads(pickle.dumps(lowkiq.Worker)) is lowkiq.Worker
    assert "class Lowkiq(" in pydoc.plain(pydoc.render_doc(lowkiq))


@pytest.mark.parametrize("leaf", ["environment", "errors", "process.lines", "process.signals"])
def test_a_leaf_brings_nothing_but_the_standard_library(leaf: str) -> None:
    code = f"import sys, lowkiq.{leaf}; print(*{{name.split('.')[0] for name in sys.modules}})"
    # Isolated, and without site: what an environment imports at its start is not the leaf's doing.
    command = [sys.executable, "-S", "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=lowkiq.__path__[0] + "/..").stdout
    assert set(printed.split()) - sys.stdlib_module_names == {"__main__", "lowkiq"}


def test_who_pushes_imports_no_renderers_of_logs() -> None:
    """They take a third of the time, and of the memory, of all that a push needs."""
    code = "import sys; from lowkiq import Lowkiq, Worker; Lowkiq(); print(*{'structlog', 'rich'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == []
