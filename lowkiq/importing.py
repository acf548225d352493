"""Finds an application by its name on a command line: MODULE or MODULE:ATTR."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from lowkiq.app import Lowkiq
from lowkiq.errors import AppNotFound


def load_app(spec: str) -> Lowkiq:
    """
    The application of MODULE[:ATTR]; without ATTR, the only one that the module has. The current directory is
    importable.

    Raises:
        AppNotFound: says what was looked for, and what is there. Errors of the module itself come through.
    """
    module_name, _, attribute = spec.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise AppNotFound(f"no module {error.name!r} here ({here}) or on sys.path: check -r {spec}") from error
        raise
    except (TypeError, ValueError) as error:
        if module_name.strip(".") == module_name and module_name:
            raise
        raise AppNotFound(f"-r takes MODULE or MODULE:ATTR, e.g. shop.jobs:app, not {spec!r}") from error
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, Lowkiq):
            raise AppNotFound(f"{module_name}.{attribute} is not a Lowkiq application but {type(found).__name__}")
        return found
    return only_app(module_name, vars(module))


def only_app(module_name: str, names: dict[str, object]) -> Lowkiq:
    """The only application among the names of a module. Raises AppNotFound, which says how to have one."""
    apps = {id(value): (name, value) for name, value in names.items() if isinstance(value, Lowkiq)}
    if len(apps) == 1:
        return next(value for _, value in apps.values())
    if not apps:
        raise AppNotFound(f"module {module_name} has no Lowkiq application: write `app = Lowkiq()` in it")
    options = ", ".join(f"{module_name}:{name}" for name, _ in apps.values())
    raise AppNotFound(f"module {module_name} has several applications, choose one: {options}")
