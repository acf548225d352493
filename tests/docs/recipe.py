"""A page's code as a module of its own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def as_module(source: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Runs it as the module `recipe`, from a file there."""
    file = directory / "recipe.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("recipe", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "recipe", module)
    spec.loader.exec_module(module)
    return module
