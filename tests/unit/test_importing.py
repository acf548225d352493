"""Finding an application by its name, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lowkiq.errors import AppNotFound
from lowkiq.importing import load_app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


APP = "from lowkiq import Lowkiq\n"


def write(here: Path, name: str, text: str) -> str:
    """A module of that name, made unlike any other test's."""
    module = f"{name}_{here.name.replace('-', '_')}"
    (here / f"{module}.py").write_text(APP + text)
    return module


def test_the_only_application_of_a_module_in_the_current_directory_is_found(here: Path) -> None:
    module = write(here, "shop", "app = Lowkiq(namespace='shop')\nalias = app\n")
    assert load_app(module).settings.namespace == "shop"
    assert load_app(f"{module}:alias").settings.namespace == "shop"


def test_of_several_one_must_be_chosen(here: Path) -> None:
    module = write(here, "two", "a = Lowkiq(namespace='a')\nb = Lowkiq(namespace='b')\n")
    assert load_app(f"{module}:b").settings.namespace == "b"
    with pytest.raises(AppNotFound, match=f"has several applications, choose one: {module}:a, {module}:b"):
        load_app(module)


def test_a_module_without_an_application_says_what_to_write(here: Path) -> None:
    with pytest.raises(AppNotFound, match="has no Lowkiq application: write `app = Lowkiq\\(\\)` in it"):
        load_app(write(here, "none", ""))


def test_an_attribute_that_is_none_or_something_else_is_named(here: Path) -> None:
    module = write(here, "other", "app = Lowkiq()\nnumber = 5\n")
    with pytest.raises(AppNotFound, match=f"{module}.number is not a Lowkiq application but int"):
        load_app(f"{module}:number")
    with pytest.raises(AppNotFound, match=f"{module}.missing"):
        load_app(f"{module}:missing")


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(here: Path) -> None:
    with pytest.raises(AppNotFound, match=f"no module 'nowhere_at_all' here \\({here}\\) or on sys.path"):
        load_app("nowhere_at_all")
    with pytest.raises(AppNotFound, match="no module 'nowhere_at_all'"):
        load_app("nowhere_at_all.jobs:app")


@pytest.mark.parametrize("spec", ["", ":app", ".jobs", "..", "jobs."])
def test_what_is_no_module_name_is_refused(spec: str) -> None:
    with pytest.raises(AppNotFound, match=r"MODULE|no module"):
        load_app(spec)


def test_an_error_of_the_module_s_own_comes_through(here: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        load_app(write(here, "broken", "1 / 0\n"))
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load_app(write(here, "lacking", "import not_installed_anywhere\n"))


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def package(here: Path, text: str = "app = Lowkiq(namespace='shop')\n") -> str:
    """A package of that name with `jobs.py` in it, made unlike any other test's."""
    name = f"shop_{here.name.replace('-', '_')}"
    (here / name).mkdir()
    (here / name / "__init__.py").write_text("")
    (here / name / "models.py").write_text("NAME = 'model'\n")
    (here / name / "jobs.py").write_text(f"{APP}from .models import NAME\n{text}")
    return name


def test_a_file_is_found_by_its_path_and_is_the_module_that_others_import(here: Path) -> None:
    name = package(here)
    app = load_app(f"./{name}/jobs.py")
    assert app is load_app(f"{name}.jobs:app") is load_app(str(here / name / "jobs.py:app"))
    assert app is sys.modules[f"{name}.jobs"].app


def test_a_file_outside_the_current_directory_finds_its_neighbours(here: Path, tmp_path_factory) -> None:
    away = tmp_path_factory.mktemp("away")
    module = write(away, "job", f"import neighbour_{here.name}\napp = Lowkiq()\n")
    (away / f"neighbour_{here.name}.py").write_text("")
    assert load_app(f"{away}/{module}.py") is sys.modules[module].app


@pytest.mark.parametrize("name", ["my-app", "types", "json"])
def test_a_file_whose_name_is_no_module_s_or_another_s_is_found_all_the_same(here: Path, name: str) -> None:
    (here / f"{name}.py").write_text(f"{APP}app = Lowkiq(namespace='mine')\n")
    app = load_app(f"./{name}.py")
    assert app.settings.namespace == "mine"
    assert load_app(f"./{name}.py:app") is app


def test_a_file_that_breaks_breaks_each_time(here: Path) -> None:
    (here / "not-there.py").write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_app("./not-there.py")


# ── did you mean ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("{name}.jobs.app", "{name}.jobs:app"),
        ("{name}.job", "{name}.jobs"),
        ("{name}.job:app", "{name}.jobs:app"),
        ("{name}x.jobs:app", "{name}.jobs:app"),
        ("{name}.jobs:ap", "{name}.jobs:app"),
        ("{name}.jobs:celery", "{name}.jobs:app"),
        ("{name}", "{name}.jobs:app"),
        ("{name}.models", "{name}.jobs:app"),
        ("{name}/jobs", "{name}/jobs.py"),
        ("{name}/jobs:app", "{name}/jobs.py:app"),
        ("{name}/job.py", "{name}/jobs.py"),
        ("./{name}/", "{name}/jobs.py:app"),
        ("{name}.jobs.py", "{name}.jobs or {name}/jobs.py"),
    ],
)
def test_what_is_nearly_right_is_told(here: Path, spec: str, meant: str) -> None:
    name = package(here)
    with pytest.raises(AppNotFound) as refusal:
        load_app(spec.format(name=name))
    assert f"did you mean {meant.format(name=name)}?" in str(refusal.value)


def test_nothing_is_made_up_where_nothing_is_near(here: Path) -> None:
    for spec in ("nowhere_at_all", "nowhere.at.all:app", "./nowhere.py", "no such thing"):
        with pytest.raises(AppNotFound) as refusal:
            load_app(spec)
        assert "did you mean" not in str(refusal.value)
