"""
Patched: whether somebody has put greenlets in the place of threads, with which no node can run.

Standard library only.
"""

from __future__ import annotations

import sys
from typing import Any

#: What may have patched → its module that knows, and the question.
_KNOWN = {"gevent": ("gevent.monkey", "is_module_patched"), "eventlet": ("eventlet.patcher", "is_monkey_patched")}
#: Names that they have for it.
_THREADS = ("threading", "thread", "_thread")


def patched_by() -> str | None:
    """The library that has patched threads in this process; None if they are the system's own."""
    for library, (module, question) in _KNOWN.items():
        ask: Any = getattr(sys.modules.get(module), question, None)
        if ask and any(ask(name) for name in _THREADS):
            return library
    return None


def cure(library: str) -> str:
    """What to do about it."""
    patch = "monkey.patch_all(thread=False)" if library == "gevent" else "eventlet.monkey_patch(thread=False)"
    return (
        f"a node runs jobs in threads of the system: have the web server alone patch, not the module of the jobs, or "
        f"use {patch}, or unset what patches in the environment; pushing from patched processes works"
    )
