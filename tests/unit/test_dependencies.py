"""What the product imports is declared, and a registry's page says whose it is."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator

from tests.support import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OURS = {"lowkiq", "lowkiq_supervisor", "pytest_lowkiq"}
#: Who has these imports what uses them: FastAPI's router, pytest's plugin, the types of a checker.
BROUGHT = {"fastapi", "pytest", "typing_extensions"}
#: Module → its distribution, where that has another name.
DISTRIBUTIONS = {"opentelemetry": "opentelemetry-api", "prometheus_client": "prometheus-client"}
#: Extras of those who only develop.
TOOLS = {"bench", "dev", "docs"}


def imported() -> Iterator[str]:
    """The top-level modules that code of the product imports."""
    for place in ("lowkiq", "supervisor/lowkiq_supervisor", "pytest_lowkiq"):
        for path in (ROOT / place).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0]


def test_all_that_is_imported_is_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    lists = [PROJECT["dependencies"], *(of for extra, of in extras.items() if extra not in TOOLS)]
    declared = {re.split(r"[^\w-]", line)[0] for lines in lists for line in lines}
    found = set(imported()) - OURS - BROUGHT - sys.stdlib_module_names
    assert len(found) > 10
    assert (
        sorted(DISTRIBUTIONS.get(name, name) for name in found if DISTRIBUTIONS.get(name, name) not in declared) == []
    )


def test_its_page_says_whose_it_is() -> None:
    assert all(PROJECT[name] for name in ("authors", "license", "readme", "keywords", "urls"))
