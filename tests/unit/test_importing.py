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
