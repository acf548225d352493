"""The README is true: it names every setting and option, and its Python compiles."""

from __future__ import annotations

import dataclasses
import re

import pytest

from lowkiq.settings import Settings
from lowkiq.worker import OPTIONS
from tests.support import ROOT

README = (ROOT / "README.md").read_text("utf-8")
DOCS = README + "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_is_in_the_table(name: str) -> None:
    assert any(f"`{name}`" in line for line in README.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("threads_per_node", "5"),
        ("poll_interval", "1 s"),
        ("client_pool_size", "5"),
        ("pool_timeout", "5 s"),
        ("lease_ttl", "15 s"),
        ("claim_window", "0.05 s"),
        ("max_crashes", "3"),
        ("max_payloads", "1,000"),
        ("max_id_bytes", "512"),
        ("drain_timeout", "25 s"),
    ],
)
def test_the_defaults_are_as_told(name: str, told: str) -> None:
    assert f"| `{name}` | {told} |" in README
    assert float(told.removesuffix(" s").replace(",", "")) == getattr(Settings(), name)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_a_worker_is_told(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL))
def test_its_python_compiles(block: str) -> None:
    compile(block, "README.md", "exec")


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(pictures) == 10 and all((ROOT / picture).exists() for picture in pictures)
