"""What a process has that its forks would not have: threads, and what of C libraries goes with them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any


def threads() -> list[str]:
    """The names of threads beside the main one, and how many more there are that Python hasn't started."""
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    tasks = Path("/proc/self/task")  # threads as the kernel counts them
    native = len(list(tasks.iterdir())) - 1 - len(names) if tasks.is_dir() else 0
    return [*names, *([f"{native} not started by Python"] if native > 0 else [])]


def missing_in_forks() -> list[str]:
    """What this process has begun, by now, that does not work in one that it forks, in words."""
    python = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    found = [f"thread {name}" for name in python]
    if "grpc" in sys.modules and len(threads()) > len(python):
        found.append("gRPC")
    is_initialized: Any = getattr(getattr(sys.modules.get("torch"), "cuda", None), "is_initialized", None)
    if is_initialized and is_initialized():
        found.append("CUDA")
    return found
