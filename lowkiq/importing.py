"""Finds an application by what a command line says: MODULE, MODULE:ATTR, or the path of a file, also with :ATTR."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from lowkiq.app import Lowkiq
from lowkiq.errors import AppNotFound
from lowkiq.suggesting import meant_attribute, meant_file, meant_module, written_nearby


def load_app(spec: str) -> Lowkiq:
    """
    The application of MODULE[:ATTR], or of a file; without ATTR, the only one that the module has. The current
    directory is importable, and of a file the directory that it is imported from.

    Raises:
        AppNotFound: says what was looked for, what is there, and what may be meant. Errors of the module itself come
            through.
    """
    name, _, attribute = spec.partition(":")
    _make_importable(Path.cwd())
    module = _import_file(spec, name) if is_path(name) else _import(spec, name)
    if attribute:
        found = getattr(module, attribute, module)
        if not isinstance(found, Lowkiq):
            hint = meant_attribute(name, attribute, names_of_apps(vars(module)))
            what = f": {name} has no such name" if found is module else f" but {type(found).__name__}"
            raise AppNotFound(f"{name}.{attribute} is not a Lowkiq application{what}{hint}")
        return found
    return only_app(name, vars(module), module)


def is_path(name: str) -> bool:
    """Returns whether that names a file, and no module."""
    return "/" in name or name.endswith(".py")


def names_of_apps(names: dict[str, object]) -> list[str]:
    """Those of the names that are applications, each of which is told once."""
    apps = {id(value): name for name, value in reversed(names.items()) if isinstance(value, Lowkiq)}
    return [*reversed(apps.values())]


def only_app(module_name: str, names: dict[str, object], module: ModuleType | None = None) -> Lowkiq:
    """The only application among the names of a module. Raises AppNotFound, which says how to have one."""
    found = names_of_apps(names)
    if not found:
        hint = written_nearby(module) if module else ""
        raise AppNotFound(f"module {module_name} has no Lowkiq application: write `app = Lowkiq()` in it{hint}")
    app = names[found[0]]
    if len(found) > 1 or not isinstance(app, Lowkiq):
        options = ", ".join(f"{module_name}:{name}" for name in found)
        raise AppNotFound(f"module {module_name} has several applications, choose one: {options}")
    return app


def _import(spec: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(
                f"no module {error.name!r} here ({Path.cwd()}) or on sys.path: check -r {spec}{meant_module(spec)}"
            ) from error
        raise
    except (TypeError, ValueError) as error:
        if name.strip(".") == name and name:
            raise
        raise AppNotFound(
            f"-r takes MODULE, MODULE:ATTR or a file, e.g. shop.jobs:app or ./shop/jobs.py, not {spec!r}"
        ) from error


def _import_file(spec: str, name: str) -> ModuleType:
    """
    Imports a file as what imports of other modules would have, so that it is there once: in a package as a module of
    that, else by its own name.
    """
    path = Path(name).absolute()
    if not path.is_file():
        what = "a directory" if path.is_dir() else "no file"
        raise AppNotFound(f"{name} is {what} here ({Path.cwd()}): check -r {spec}{meant_file(spec)}")
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if parts[-1] == "__init__":
        parts.pop()
    _make_importable(root)
    if all(part.isidentifier() for part in parts):
        module = importlib.import_module(".".join(parts))
        if module.__file__ and Path(module.__file__).resolve() == path.resolve():
            return module
    return _import_alone(path)  # its name is no module's, or that of another


def _import_alone(path: Path) -> ModuleType:
    name = f"lowkiq_app_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise AppNotFound(f"{path} is no Python file: it must end in .py")
    module = sys.modules.get(name) or importlib.util.module_from_spec(found)
    if sys.modules.setdefault(name, module) is module and not hasattr(module, "__lowkiq_path__"):
        module.__dict__["__lowkiq_path__"] = str(path)
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _make_importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
