"""The guides' commands, as they stand in the documents: what people paste must work as it is."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.deploy.tools import run
from tests.support import ROOT


def commands(document: str, heading: str) -> list[str]:
    """The commands of the first console block under a heading, without their prompts and comments."""
    text = (ROOT / document).read_text()
    below = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    block = re.search(r"```console\n(.*?)```", below, re.DOTALL)
    assert block, f"{document}: no console block under {heading}"
    lines = re.sub(r" *\\\n\s*", " ", block[1]).splitlines()
    return [re.sub(r"\s{2,}# .*", "", line[2:]) for line in lines if line.startswith(("# ", "$ "))]


def wheel(directory: Path) -> Path:
    """This checkout's: the one in LOWKIQ_WHEEL, or one built here."""
    if given := os.environ.get("LOWKIQ_WHEEL"):
        return Path(given)
    run([sys.executable, "-m", "build", "--wheel", "--outdir", directory, ROOT], cwd=directory, timeout=300)
    (built,) = directory.glob("*.whl")
    return built
