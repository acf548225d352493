"""Contenders: how each peer is started, and how it was tuned."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender, lowkiq
from benchmarks.peers.postgres import database
from tests.support import ROOT

#: Where `make bench-peers` installs them.
HOME = ROOT / ".venv-peers"
APPS = Path(__file__).parent / "apps"


def contenders() -> list[Contender]:
    """All of them: ours, then the peers from the fastest that is known."""
    return [
        lowkiq(tcp=True),
        sidekiq(),
        _node(),
        _python("Huey", "huey", "threads, blocking reads, no results, pickle as shipped"),
        _python("Taskiq", "taskiq", "a list, its fastest broker; orjson, uvloop, prefetch 100", "taskiq_redis"),
        _python("arq", "arq", "uvloop, poll_delay 0.01 s in place of 0.5, JSON, results not kept"),
        _python("SAQ", "saq", "uvloop, orjson, results not kept"),
        _python("Dramatiq", "dramatiq", "threads, queue_prefetch 1,000"),
        _python("Celery", "celery", "threads, prefetch multiplier 100, no results, events, gossip or heartbeat"),
        _python("RQ", "rq", "5 processes that do not fork in place of 5 threads; JSON, results not kept"),
        _python("streaQ", "streaq", "uvloop, prefetch 100, JSON, results not kept"),
        _python(
            "Procrastinate",
            "procrastinate",
            "PostgreSQL on a unix socket without fsync; LISTEN, finished jobs deleted",
            backend=database,
            on_redis=False,
        ),
        original(),
    ]


def sidekiq() -> Contender:
    """Sidekiq, whose gem may also come from the system."""
    check = "begin; require 'hiredis-client'; rescue LoadError; require 'hiredis'; end; puts Sidekiq::VERSION"
    return _ruby("Sidekiq", "sidekiq_app.rb", f"require 'sidekiq'; {check}", "hiredis, push_bulk")


def original() -> Contender:
    """The Lowkiq in Ruby that this one follows."""
    check = "require 'lowkiq'; require 'hiredis'; puts Lowkiq::VERSION"
    tuning = "hiredis, sequential scheduler, JSON, 5 shards a process"
    return _ruby("Lowkiq (Ruby)", "lowkiq_app.rb", check, tuning, batches=True)


def _python(name: str, package: str, tuning: str, module: str = "", **more: Any) -> Contender:
    python = str(HOME / package / "bin" / "python")
    version = f"import {module or package}, importlib.metadata as m; print(m.version('{package}'))"
    return Contender(
        name=name,
        command=(python, "-m", "benchmarks.peers.apps.stage", f"{package}_app"),
        check=(python, "-c", version),
        tuning=tuning,
        **more,
    )


def _node() -> Contender:
    return Contender(
        name="BullMQ",
        command=("node", str(APPS / "bullmq_app.js")),
        check=("node", "-p", "require('bullmq/package.json').version"),
        tuning="concurrency 5, finished jobs removed, addBulk; one core a process",
        environment={"NODE_PATH": str(HOME / "npm" / "node_modules"), "NODE_ENV": "production"},
    )


def _ruby(name: str, app: str, check: str, tuning: str, **more: Any) -> Contender:
    return Contender(
        name=name,
        command=(shutil.which("ruby") or "ruby", str(APPS / app)),
        check=(shutil.which("ruby") or "ruby", "-e", check),
        tuning=tuning,
        environment={"GEM_HOME": str(HOME / "gems")},
        **more,
    )
