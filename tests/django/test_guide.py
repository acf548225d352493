"""docs/django.md, followed as it is printed, from `startproject` on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, SOURCES, RedisServer

#: Python and commands, in the order of the page.
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)

USE = """
from django.db import transaction
from shop.jobs import Change, sync_order
from shop.models import Order
from shop.orders import pay
from shop.safely import send
from shop.tasks import mirror, send_receipt

Order.objects.bulk_create([Order(id=17), Order(id=18)])
pay(17)
send(18)
mirror.enqueue(17, "paid")
mirror.enqueue(17, "sent")
send_receipt.enqueue("ann@example.com")
sync_order().perform_one(17, [Change(17, 1)])
"""


def test_the_guide_works_as_printed(tmp_path: Path, redis_server: RedisServer) -> None:
    redis_server.ask("FLUSHALL")
    plain = {name: value for name, value in os.environ.items() if "REDIS" not in name and "LOWKIQ" not in name}
    environment = plain | {"REDIS_URL": redis_server.url, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1"}

    def run(command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, timeout=200, check=False,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    manage = [sys.executable, "manage.py"]
    for kind, text in BLOCK.findall((ROOT / "docs/django.md").read_text("utf-8")):
        if kind == "python":
            # What is at the end of a file goes on with it; other files are new.
            named = re.match(r"# (\S+\.py)(, at its end)?\n", text)
            assert named, text
            module = tmp_path / named[1]
            module.write_text((module.read_text("utf-8") if named[2] else "") + "\n" + text)
            continue
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            programs = {"django-admin": [sys.executable, "-m", "django"], "python": [sys.executable]}
            if words[0] in programs:
                run(programs[words[0]] + words[1:])
    run([*manage, "check"])
    assert "order 17 is paid after 1 changes" in run([*manage, "shell", "-c", USE])
    run([*manage, "lowkiq_outbox", "--once"])
    # On one thread, as what several print at a time gets mixed up.
    said = run([*manage, "lowkiq", "--burst", "--threads", "1"])
    for line in ("order 17 is paid after 1 changes", "order 18 is sent after 1 changes", "receipt to ann@example.com"):
        assert line in said
    assert said.index("order 17 is mirrored as paid") < said.index("order 17 is mirrored as sent")
    assert "E001" in _refused([*manage, "check"], tmp_path, environment)


def _refused(command: list[str], project: Path, environment: dict[str, str]) -> str:
    """What manage.py says of the misspelt setting that the guide shows."""
    settings = project / "project/settings.py"
    settings.write_text(settings.read_text("utf-8").replace('"drain_timeout"', '"drain_timout"'))
    done = subprocess.run(command, cwd=project, env=environment, text=True, capture_output=True, check=False)
    assert "unknown option `drain_timout`, did you mean `drain_timeout`?" in done.stderr
    return done.stderr
