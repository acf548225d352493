"""README and docs are true: they name every setting and option, their Python compiles, their links lead somewhere."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from lowkiq.options import OF_WORKERS
from lowkiq.settings import Settings
from lowkiq.worker import Worker
from tests.support import ROOT

PAGES = {path: path.read_text("utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
MAP = PAGES[ROOT / "docs/contributing.md"]
SETTINGS = PAGES[ROOT / "docs/settings.md"]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


def pictures(page: Path) -> list[Path]:
    return [page.parent / target for target in re.findall(r'(?:src|srcset)="([^"]+)"', PAGES[page])]


def anchors(page: Path) -> set[str]:
    """GitHub's: of a heading its words in lower case, joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_is_in_the_table(name: str) -> None:
    assert any(f"`{name}`" in line for line in SETTINGS.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("threads_per_node", "5"),
        ("poll_interval", "1 s"),
        ("client_pool_size", "5"),
        ("pool_timeout", "5 s"),
        ("push_timeout", "5 s"),
        ("wait_replicas", "0"),
        ("wait_timeout", "1 s"),
        ("lease_ttl", "15 s"),
        ("claim_window", "0.05 s"),
        ("max_crashes", "3"),
        ("max_payloads", "1,000"),
        ("max_id_bytes", "512"),
        ("drain_timeout", "25 s"),
    ],
)
def test_the_defaults_are_as_told(name: str, told: str) -> None:
    assert f"| `{name}` | {told} |" in SETTINGS
    assert float(told.removesuffix(" s").replace(",", "")) == getattr(Settings(), name)


@pytest.mark.parametrize("name", OF_WORKERS)
def test_every_option_of_a_worker_is_told(name: str) -> None:
    told = {
        "queue_name": "the class name",
        "concurrency": "as many as threads are free; 100 for `async def`",
        "equal": "that of the application, last",
    }
    default = told.get(name) or getattr(Worker, name) or "none"
    assert f"| `{name}` | {default} |" in SETTINGS


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", "".join(PAGES.values()), re.DOTALL))
def test_the_python_compiles(block: str) -> None:
    compile(block, "a page", "exec")


@each_page
def test_the_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", PAGES[page]):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


@each_page
def test_the_pictures_are_there(page: Path) -> None:
    assert all(picture.exists() for picture in pictures(page))


def test_readme_is_short() -> None:
    assert len(PAGES[ROOT / "README.md"].splitlines()) <= 150


def test_every_picture_is_shown() -> None:
    shown = {picture.name for page in PAGES for picture in pictures(page)}
    shown |= {Path(target).name for text in PAGES.values() for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)}
    assert shown == {path.name for path in (ROOT / "docs/images").iterdir()}
    assert len(pictures(ROOT / "README.md")) == 2


def test_the_map_names_every_room_and_no_other() -> None:
    table = MAP.partition("| room |")[2].partition("\n\n")[0]
    rooms = set(re.findall(r"`([a-z_/]+/)`", "".join(line.split("|")[1] for line in table.splitlines() if "`" in line)))
    packages = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "lowkiq").glob("*/__init__.py")}
    assert packages | {"lowkiq/", "supervisor/lowkiq_supervisor/"} <= rooms
    assert all((ROOT / room).is_dir() for room in rooms)
