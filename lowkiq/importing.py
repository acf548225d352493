"""
Finds an application by what a command line says: MODULE, MODULE:ATTR, or the path of a file, also with :ATTR.
Says what may have been meant where there is none, without importing more.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Final

from lowkiq.app import Lowkiq
from lowkiq.errors import AppNotFound

#: An application at the beginning of a line: `app = Lowkiq(`, `app: Lowkiq = lowkiq.Lowkiq(`.
_WRITTEN: Final = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:lowkiq\.)?Lowkiq\(", re.MULTILINE)
#: What registers a worker or a task, at the beginning of a line.
_REGISTERED: Final = re.compile(r"^@(?:\w+\.)+(?:worker|every|task)\b", re.MULTILINE)
#: Files of a directory that are looked at.
MOST_FILES: Final = 200
#: Bytes of each of them.
MOST_BYTES: Final = 200_000
#: Suggestions of one message.
MOST_TOLD: Final = 5


def meant_module(spec: str) -> str:
    """A hint for MODULE[:ATTR], where there is no such module."""
    name, _, attribute = spec.partition(":")
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return ""
    suffix = f":{attribute}" if attribute else ""
    places = [Path.cwd()]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if last and number and not attribute and part in _written_in(_file_of(parts[:-1])):  # shop.jobs.app
            return _asked([f"{'.'.join(parts[:-1])}:{part}"])
        below = [place / part for place in places if (place / part).is_dir()]
        if (last or not below) and not _is_there(places, part):
            near = difflib.get_close_matches(part, _modules_in(places), n=MOST_TOLD, cutoff=0.6)
            return _asked([".".join([*parts[:number], one, *parts[number + 1 :]]) + suffix for one in near])
        places = below
    return ""


def meant_file(spec: str) -> str:
    """A hint for a path, where there is no such file."""
    name, _, attribute = spec.partition(":")
    suffix = f":{attribute}" if attribute else ""
    path = Path(name)
    if path.is_dir():
        return _asked(list(_apps_below(sorted(path.glob("*.py")))))
    dotted = Path(*name.removesuffix(".py").split(".")).with_suffix(".py")
    if path.with_suffix(".py").is_file():
        return _asked([f"{path.with_suffix('.py')}{suffix}"])
    if "/" not in name and dotted.is_file():  # shop.jobs.py
        return _asked([f"{name.removesuffix('.py')}{suffix}", f"{dotted}{suffix}"])
    here = [str(found.name) for found in islice(path.parent.glob("*.py"), MOST_FILES)] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, here, n=MOST_TOLD, cutoff=0.6)
    return _asked([f"{path.parent / one}{suffix}" for one in near])


def meant_attribute(module: str, attribute: str, apps: Sequence[str]) -> str:
    """A hint for an attribute that is no application, where the module has others that are."""
    near = difflib.get_close_matches(attribute, apps, n=MOST_TOLD, cutoff=0.6) or list(apps[:MOST_TOLD])
    return _asked([f"{module}:{one}" for one in near])


def written_nearby(module: ModuleType) -> str:
    """A hint for a module that has no application, where modules beside it, or in it, seem to have one."""
    return _asked([f"{name}:{app}" for name, path in _nearby(module) for app in _written_in(path)][:MOST_TOLD])


def workers_nearby(app: object) -> str:
    """A hint for an application without workers, where modules beside its own seem to register some."""
    modules = [module for module in [*sys.modules.values()] if isinstance(module, ModuleType)]
    its_own = next((module for module in modules if any(value is app for value in vars(module).values())), None)
    found = [name for name, path in _nearby(its_own) if _written_in(path, _REGISTERED)] if its_own else []
    return _asked([f"-r {name}" for name in found[:MOST_TOLD]])


def _nearby(module: ModuleType) -> Iterator[tuple[str, Path]]:
    """Modules beside that one, or in it, by their names."""
    if not module.__file__:
        places = [Path(place) for place in getattr(module, "__path__", ())]
    else:
        places = [Path(module.__file__).parent]
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    for path in (path for place in places for path in islice(sorted(place.glob("*.py")), MOST_FILES)):
        if path.stem != "__init__" and str(path) != module.__file__:
            yield ".".join(filter(None, (package, path.stem))), path


def _asked(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _modules_in(places: Iterable[Path]) -> list[str]:
    return [
        path.stem
        for place in places
        for path in islice(place.iterdir(), MOST_FILES)
        if path.suffix == ".py" or (path.is_dir() and path.name.isidentifier())
    ]


def _is_there(places: Iterable[Path], name: str) -> bool:
    return any((place / name).is_dir() or (place / f"{name}.py").is_file() for place in places)


def _file_of(parts: Sequence[str]) -> Path | None:
    """The file of a module, here or on sys.path."""
    here = Path.cwd().joinpath(*parts)
    for path in (here.with_suffix(".py"), here / "__init__.py"):
        if path.is_file():
            return path
    try:
        found = importlib.util.find_spec(".".join(parts))
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin and found.origin.endswith(".py") else None


def _apps_below(files: Iterable[Path]) -> Iterator[str]:
    for path in islice(files, MOST_FILES):
        for name in _written_in(path):
            yield f"{path}:{name}"


def _written_in(path: Path | None, what: re.Pattern[str] = _WRITTEN) -> list[str]:
    """The names of applications that a file seems to make, or what else it seems to have."""
    if path is None:
        return []
    try:
        with path.open(errors="replace") as file:
            return what.findall(file.read(MOST_BYTES))
    except OSError:
        return []


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
