"""The pages that say how to move here: their Python is accepted by mypy at its strictest, and runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, SOURCES, RedisServer
from tests.typing.examples import blocks

PAGES = tuple(
    Path(page).stem for page in ("docs/from_celery.md", "docs/from_rq.md", "docs/from_sidekiq.md", "docs/from_ruby.md")
)
#: What a shop has besides.
ERP = """
def send_to_erp(order_id: object, state: object) -> None:
    print(order_id, state)


def add_points_to(user_id: int, points: int) -> None: ...
def reserve_stock(order_id: int, item: str) -> None: ...
def ship_parcel(order_id: int, carrier: str) -> None: ...
def alert(id: str, error: str | None) -> None: ...
"""

each_page = pytest.mark.parametrize("page", PAGES)


@pytest.fixture
def shop(page: str, tmp_path: Path) -> Path:
    """The shop of a page after its move; without what is for Django alone, or for Celery beside it."""
    for block in blocks(f"docs/{page}.md"):
        if named := re.match(r"# after: (\S+\.py)(?:: .*)?\n", block):
            module = tmp_path / named[1]
            module.parent.mkdir(exist_ok=True)
            assert not module.exists(), f"{named[1]} twice"
            module.write_text(block)
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/erp.py").write_text(ERP)
    return tmp_path


def run(shop: Path, *command: str, **environment: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [sys.executable, *command], cwd=shop, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": f"{shop}{os.pathsep}{SOURCES}", "PATH": path} | environment,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@each_page
def test_the_code_after_the_move_is_accepted_by_mypy(shop: Path, page: str) -> None:
    run(
        shop,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
        ".",
        MYPYPATH=str(ROOT),
    )


@each_page
def test_it_runs(shop: Path, page: str, redis_server: RedisServer) -> None:
    environment = {"REDIS_URL": redis_server.url, "LOWKIQ_NAMESPACE": page}
    for module in sorted((shop / "shop").glob("[!_]*.py")):
        run(shop, "-c", f"import shop.{module.stem}", **environment)
    if (shop / "test_order.py").exists():
        run(shop, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_order.py", **environment)
    if (shop / "back.py").exists():
        run(shop, "back.py", **environment)
