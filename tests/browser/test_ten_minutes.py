"""The shop with its faults in two minutes, with those that differ most: see ten_minutes.py. `make shop` takes ten."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.faults import FAULTS, SHORTEST
from tests.browser.ten_minutes import run, tell
from tests.browser.troubled_shop import TroubledShop

pytestmark = [pytest.mark.rare, pytest.mark.timeout(900)]


def test_the_page_says_at_each_moment_what_is_wrong_and_since_when(tmp_path: Path, chromium: Browser) -> None:
    with TroubledShop(tmp_path, chromium) as shop:
        rows = list(run(shop, [FAULTS[name] for name in SHORTEST], 0))
    for row in rows:
        tell(row)
    assert [row for row in rows if not row.is_right] == []
    # The machine is slow, and heartbeats come every five seconds: but nobody is told of another time.
    assert [row for row in rows if row.since is not None and abs(row.since) > 30] == []
