"""The examples of README and the tour do as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from lowkiq import Lowkiq
from tests.support import LOWKIQ, SOURCES, RedisServer
from tests.typing.examples import write_project

#: Threads print at the same time, and print() writes each of its arguments, and the line break, by itself.
WHOLE_LINES = """
import builtins
builtins.print = lambda *words, print=print: print(" ".join(map(str, words)) + "\\n", end="")
"""


def test_what_readme_pushes_is_performed(tmp_path: Path, app: Lowkiq, redis_server: RedisServer) -> None:
    environment = os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace, "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join([SOURCES, str(tmp_path)]),
    }  # fmt: skip

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "sitecustomize.py").write_text(WHOLE_LINES)
    for script in write_project(tmp_path):
        text = script.read_text()
        if returns := re.search(r"^# (Pushed\(.*\))$", text, re.MULTILINE):
            # The last expression is what its comment says, as in a shell.
            shown = re.sub(r"^((?:\w+\.\w+)\(.*\))(  #.*)?\n# Pushed", r"print(\1)\n# Pushed", text, flags=re.MULTILINE)
            assert run("-c", shown).splitlines() == [returns[1]]
    printed = run(*LOWKIQ, "-r", "shop.jobs", "--burst").splitlines()
    assert sorted(line for line in printed if line.startswith("order")) == [
        "order 17 is announced as paid",
        "order 17 is mirrored as sent",
        "order 17 is now {'state': 'paid'}",
        "order 42 is announced as sent",
        "order 42 is now {'state': 'sent'}",
    ]
