"""Who has which shards, and why: each reason on the pages, read by people and by axe; and a machine that vanished."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from lowkiq import Lowkiq
from lowkiq.admin.beats.members import Members, Placement
from lowkiq.admin.past.incidents import NewIncident, note
from lowkiq.queue import keys
from lowkiq.queue.call import redis_time
from tests.browser.conftest import LOOKS
from tests.queue.shard_driver import ShardDriver
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health

SHARDS = 7
HERE, THERE, ENDS, GONE = "web-1:11:a", "web-2:12:b", "web-3:13:c", "web-4:14:d"
SHARED: dict[str, Any] = {"is_elastic": True, "queues": ["q"], "number_of_nodes": 1, "supervisor_pid": 7}
FREE: dict[str, Any] = {"": {"q": [5]}}
#: What the table of shards says of each, 0 to 6.
REASONS = (
    "its share", "moved here to balance,",
    "it goes to node 0 on web-2 between two claims", "its node ends: it goes to node 0 on web-2 between two claims",
    "its node is not heard of; node 0 on web-2 takes it when the lease ends", "free: node 0 on web-2 takes it",
    "its share",
)  # fmt: skip
SAYS = "Node 0 on web-2 joined: 3 shards moved from node 0 on web-1 to node 0 on web-2 (3)"


@pytest.fixture
def tell_all(app: Lowkiq) -> Callable[[], None]:
    """Nodes that are about to share anew: each call has them beat, but for one, of which nothing was heard."""
    beats: dict[str, dict[str, Any]] = {
        HERE: {"owned": {"q": [0, 1, 2]}, "fostered": {"q": [2]}, "waited_for": {}},
        THERE: {"owned": {"q": [6]}, "waited_for": {HERE: {"q": [2]}, ENDS: {"q": [3]}, GONE: {"q": [4]}} | FREE},
        ENDS: {"owned": {"q": [3]}, "fostered": {"q": [3]}, "waited_for": {}, "state": "draining"},
        GONE: {"owned": {"q": [4]}, "waited_for": {}},
    }  # fmt: skip

    def tell_all() -> None:
        for number, (name, facts) in enumerate(beats.items()):
            host, pid, _ = name.split(":")
            tell_health(app, node=name, host=host, pid=int(pid), **SHARED | {"supervisor_pid": number + 1} | facts)
        app.redis().zincrby(keys.nodes(app.settings.namespace), -40.0, GONE)

    return tell_all


@pytest.fixture
def url(app: Lowkiq, make_web: Any, serve: Any, tell_all: Callable[[], None]) -> str:
    """A view of them."""
    open_queue(app, shards_count=SHARDS)
    tell_all()
    for shard, owner in {0: HERE, 1: HERE, 2: HERE, 3: ENDS, 4: GONE, 6: THERE}.items():
        ShardDriver(app, "q", shard, SHARDS).lease(owner, ttl=300)
    caller, namespace = app.caller, app.settings.namespace
    Members(caller, namespace, HERE).give({("q", 1): Placement(HERE, redis_time(caller) - 120, 0.93)}, [])
    note(caller, namespace, [NewIncident(key="moved:1", kind="moved", severity="note", says=SAYS)])
    return str(serve(make_web()))


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_the_pages_say_who_has_what_and_why(
    url: str, tell_all: Callable[[], None], look: Any, examine: Any, scheme: str, width: int
) -> None:
    page = look(f"{url}/queues/q", color_scheme=scheme, width=width, bypass_csp=True)
    table = page.get_by_role("region", name="Table of shards")
    for shard, says in enumerate(REASONS):
        expect(table.locator(f"tr[data-key='{shard}'] td.reason")).to_contain_text(says)
    _look_at(page, examine, width, f"queue-{scheme}-{width}", "section[aria-labelledby=shards]")
    tell_all()  # axe may have taken so long that they would count as late
    page.goto(f"{url}/nodes")
    expect(page.get_by_text("web-4 went away without saying goodbye at").first).to_be_visible()
    here = page.locator("article.node", has_text="web-1:11")
    for says in ("fair share", "Moved here to balance", "to node 0 on web-2"):
        expect(here).to_contain_text(says)
    _look_at(page, examine, width, f"nodes-{scheme}-{width}", "main")
    page.get_by_role("link", name="Moves", exact=True).click()
    expect(page.get_by_text(SAYS)).to_be_visible()
    _look_at(page, examine, width, f"moves-{scheme}-{width}", "main")


def _look_at(page: Any, examine: Any, width: int, name: str, part: str) -> None:
    examine(page, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    if shots := os.environ.get("LOWKIQ_TEST_SHOTS"):
        page.locator(part).first.screenshot(path=Path(shots, f"{name}.png"))
