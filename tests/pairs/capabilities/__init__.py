"""The capabilities, one file each. A new one is a file here: what it adds to a history, and how it judges it."""

from __future__ import annotations

import importlib
import pkgutil

from tests.pairs.capability import Capability


def _all() -> dict[str, type[Capability]]:
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, Capability) and one.__module__ == module.__name__:
                found[one.name] = one
    return dict(sorted(found.items()))


ALL = _all()
