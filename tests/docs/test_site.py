"""The documentation site, built as `make docs` does: no warnings, an entry for every public name, readable for all."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest
from sphinx.util.inventory import InventoryFile

import lowkiq
from tests.browser.conftest import axe, chromium, examine, look  # noqa: F401 (fixtures)
from tests.support import ROOT

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "helm/lowkiq/README.md"])


@functools.cache
def build(directory: Path) -> subprocess.CompletedProcess[str]:
    """Builds it as the Makefile says, once."""
    command = re.search(r"^docs:.*\n\t@\$\(BIN\)/python (.*) \$\(ARGS\)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command
    options = command[1].replace("build/", f"{directory}/").split()
    assert {"-W", "-E"} <= {*options}
    whole = [sys.executable, *options, ".", directory / "site"]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("docs")


@pytest.fixture
def site(directory: Path) -> Path:
    """The root of a site that was built without a warning."""
    built = build(directory)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return directory / "site"


def told(site: Path) -> set[str]:
    """Names of Python that the site's index has, as other projects' pages can link to them."""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    return {name for domain, names in inventory.data.items() if domain.startswith("py:") for name in names}


def public_names() -> set[str]:
    """Names of the package, and of its rooms for others' frameworks and tools."""
    rooms = re.findall(r'"(\w+)"', (ROOT / "docs/conf.py").read_text().partition("ROOMS = (")[2].partition(")")[0])
    assert "testing" in rooms
    modules = ["lowkiq", "lowkiq.web", *(f"lowkiq.{room}" for room in rooms if find_spec(f"lowkiq.{room}"))]
    named = {f"{module}.{name}" for module in modules for name in importlib.import_module(module).__all__}
    return named | {
        "lowkiq.settings.Settings",
        *(f"lowkiq.node.schedulers.{name}" for name in ("Lag", "Seq", "Ordered")),
    }


def test_every_public_name_has_an_entry(site: Path) -> None:
    assert public_names() - told(site) == set()


@pytest.mark.parametrize("kind", [lowkiq.Lowkiq, lowkiq.Worker, lowkiq.Context])
def test_every_public_method_has_an_entry(site: Path, kind: type) -> None:
    hidden = {
        "Lowkiq": {"caller", "shards", "validated", "push_validated", "name_of", "thresholds"},
        "Worker": {"registered_app", "shape", "codec", "fewer", "app"},
        "Context": {"end", "hold", "is_known", "logged", "number_of_batch"},
    }  # fmt: skip
    public = {name for name in vars(kind) if not name.startswith("_")} - hidden.get(kind.__name__, set())
    assert {f"lowkiq.{kind.__name__}.{name}" for name in public} - told(site) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_every_page_is_there(site: Path, page: Path) -> None:
    html = (site / page.relative_to(ROOT)).with_suffix(".html")
    assert "</html>" in html.read_text("utf-8")


def test_every_command_shows_its_help(site: Path) -> None:
    html = (site / "docs/cli.html").read_text("utf-8")
    assert {"lowkiq", "lowkiq morgue revive", "lowkiq-supervisor", "lowkiq-supervisor scale"} <= {
        *re.findall(r"<h3>([^<]+)<", html)
    }
    assert "--out-of-order" in html


def test_programs_find_every_page(site: Path) -> None:
    found = re.findall(r"^- \[[^]]+\]\((\S+)\): \S", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert {*found} == {str(page.relative_to(ROOT).with_suffix(".html")) for page in PAGES}


@pytest.mark.parametrize("title", ["Idempotent jobs", "Retry policies", "Priority", "Troubleshooting"])
def test_the_search_has_the_words_of_newcomers(site: Path, title: str) -> None:
    assert f'"{title}":' in (site / "searchindex.js").read_text("utf-8")


def test_every_picture_is_there(site: Path) -> None:
    for page in (site / "docs").glob("*.html"):
        for target in re.findall(r'(?:src|srcset)="([^":?#]+)[?#]?[^"]*"', page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site's, behind a real server: browsers restrict pages that are files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(address: str, look, examine, scheme: str) -> None:  # noqa: F811
    page = look(address, color_scheme=scheme)  # the start page, by way of the root
    page.wait_for_url("**/docs/index.html")
    examine(page, "the start page")
    # The longest one, of a thousand entries, has no color that the others have not.
    for name in ("tutorial", "ordering", "reference")[: 3 if scheme == "light" else 2]:
        page.goto(f"{address}/docs/{name}.html")
        examine(page, name)
