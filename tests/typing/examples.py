"""The Python of README and the pages, as modules of a user's project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.support import ROOT

#: Pages whose modules make up one application, in the order in which they are read.
PROJECT: Final = ("README.md", "docs/tour.md")
#: Pages whose blocks stand alone.
ALONE: Final = tuple(f"docs/{page}.md" for page in (
    "debounce", "fairness", "isolation", "limits", "long_jobs", "managing", "operators", "ordering", "pushing",
    "retries", "workers",
))  # fmt: skip
#: What the examples that stand alone take for granted, by the name that they use.
GRANTED: Final = {
    "Any": "from typing import Any",
    "Iterable": "from collections.abc import Iterable",
    "UUID": "from uuid import UUID",
    "dataclass": "from dataclasses import dataclass",
    "current": "import lowkiq",
    "Worker": "from lowkiq import Worker",
    "Pushed": "from lowkiq import Pushed",
    "app": "from shop.jobs import app",
    "OrderSync": "from shop.jobs import OrderSync",
    "Order": "from dataclasses import dataclass\n\n\n@dataclass\nclass Order:\n    id: int\n    version: int\n",
    "pages_of": "def pages_of(payloads_by_id: Any) -> list[str]:\n    return [str(payloads_by_id)]\n",
    "rows_of": "def rows_of(payloads_by_id: Any) -> list[str]:\n    return [str(payloads_by_id)]\n",
    "write": "def write(page: str) -> None: ...\n",
    "call_the_erp": "def call_the_erp(payloads_by_id: dict[str, list[Any]]) -> None: ...\n",
    "request": "class Answer:\n    status, headers = 200, {'Retry-After': '7'}\n\n\n"
    "def request(id: str, payloads: list[Any]) -> Answer:\n    return Answer()\n",
}


def blocks(page: str) -> list[str]:
    """The Python of a page, block by block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


def granted(block: str) -> str:
    """The block, with what it takes for granted in front."""
    before = [
        source
        for name, source in GRANTED.items()
        if re.search(rf"\b{name}\b", block) and not re.search(rf"import .*\b{name}\b|^{name} = ", block, re.MULTILINE)
    ]
    return "\n".join([*before, block])


def write_project(project: Path) -> list[Path]:
    """
    Writes the modules of README and the tour, each block to the file that its first line names, and what is run beside
    them. Returns the latter.
    """
    scripts: list[Path] = []
    for block in [block for page in PROJECT for block in blocks(page)]:
        if named := re.match(r"# (\S+\.py)\n", block):
            module = project / named[1]
            module.parent.mkdir(exist_ok=True)
            module.write_text((module.read_text() if module.exists() else "") + block)
        else:
            scripts.append(project / f"readme_{len(scripts)}.py")
            scripts[-1].write_text(block)
    (project / "shop/__init__.py").touch()
    return scripts


def write_examples(project: Path) -> list[Path]:
    """Writes that, and the examples that stand alone or are the tutorial's, beside it."""
    scripts = write_project(project)
    for page in ALONE:
        for number, block in enumerate(blocks(page)):
            (project / f"{Path(page).stem}_{number}.py").write_text(granted(block))
    for block in blocks("docs/tutorial.md"):
        (project / block.partition("\n")[0].removeprefix("# ")).write_text(block)
    return scripts
