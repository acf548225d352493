"""A queue is given another number of shards from its page, which shows how far that is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.applications import Starlette

from lowkiq import Lowkiq
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.admin.resharding import read_layout
from tests.queue.shard_driver import ShardDriver
from tests.support import wait_until
from tests.web.conftest import Browser
from tests.web.pages.test_flow import press
from tests.web.reading import Html, read


@pytest.fixture
def browser(make_web: Callable[..., Starlette], browse: Callable[..., Browser], driver: ShardDriver) -> Browser:
    driver.push("a")
    return browse(make_web())


def test_it_is_asked_back_done_and_shown(browser: Browser, app: Lowkiq) -> None:
    assert "Reshard q?" in Html(browser.get("/queues/q/reshard").text).text
    done = press(browser, "/queues/q/reshard", shards="3")
    assert (done.status_code, done.headers["location"]) == (303, "/queues/q")
    known = read_layout(app.caller, app.settings.namespace, "q")
    assert known is not None and known.is_moving and known.shards_count == 3
    assert wait_until(lambda: "resharding 1 → 3" in read(browser, "/queues/q").text)
    assert "reshard" in {incident.kind for incident in read_incidents(app.caller, app.settings.namespace)}
    refused = press(browser, "/queues/q/reshard", shards="7")
    assert refused.status_code == 400 and "is being resharded from 1 to 3 shards" in Html(refused.text).text


@pytest.mark.parametrize("shards", ["", "0", "x", "-1", "65537", "1e3", "٣"])
def test_what_is_no_number_of_shards_is_refused(browser: Browser, app: Lowkiq, shards: str) -> None:
    assert press(browser, "/queues/q/reshard", shards=shards).status_code == 400
    known = read_layout(app.caller, app.settings.namespace, "q")
    assert known is not None and known.shards_count == 1 and not known.is_moving


def test_it_needs_a_queue_a_token_and_a_view_that_may_act(
    browser: Browser, make_web: Callable[..., Starlette], browse: Callable[..., Browser]
) -> None:
    assert browser.get("/queues/no/reshard").status_code == 404
    assert browser.post("/queues/q/reshard", {"shards": "3"}).status_code == 403
    assert browse(make_web(read_only=True)).get("/queues/q/reshard").status_code == 403
