"""Jobs that wait for others, on their pages: how far that is, circles, and what a deletion of those would let go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from typer.testing import CliRunner

from lowkiq import Lowkiq
from lowkiq.cli.commands import cli
from lowkiq.worker import Worker
from tests.node.driven import burst
from tests.web.conftest import Browser
from tests.web.reading import Html, read, submit


@pytest.fixture
def works(app: Lowkiq) -> tuple[type[Worker], type[Worker]]:
    return app.worker(queue_name="a")(lambda _: None), app.worker(queue_name="b")(lambda _: None)


@pytest.fixture
def browser(make_web: Callable[..., Starlette], browse: Callable[..., Browser], works: Any) -> Browser:
    return browse(make_web())


def test_a_circle_is_shown_and_how_far_a_wait_is(
    app: Lowkiq, works: tuple[type[Worker], type[Worker]], browser: Browser
) -> None:
    a, b = works
    app.push(a, [{"id": "1", "perform_in": 4e9}])
    app.push(b, [{"id": "2", "after": [(a, "1"), (a, "gone")]}])
    app.push(a, [{"id": "1", "after": [(b, "2")]}])
    burst(app)
    text = read(browser, "/queues/b/job?id=2").text
    assert (
        "Waits for 1 of 2 jobs: a 1; b 2, a 1 wait for one another: have one of them wait no more, or delete it" in text
    )
    page = browser.get("/queues/b/job?id=2").text
    assert '<progress max="2" value="1"' in page
    assert "wait for one another" in read(browser, "/queues/a/job?id=1").text


def test_a_deletion_says_and_the_command_asks_if_others_wait(
    app: Lowkiq, works: tuple[type[Worker], type[Worker]], browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = works
    app.push(a, [{"id": id, "perform_in": 4e9} for id in ("1", "alone")])
    app.push(b, [{"id": "2", "after": [(a, "1")]}])
    burst(app)
    assert a.actions.waited_for(["1", "alone"]) == ["1"]
    fields = [("view", "scheduled"), ("ids", "1"), ("token", browser.get("/api/v1/token").json()["token"])]
    told = submit(browser, "/queues/a/actions", ("action", "cancel"), *fields)
    assert "Other jobs wait for 1: they run once nothing is left of it." in Html(told.text).text
    monkeypatch.setenv("LOWKIQ_REDIS_URL", app.settings.redis_url)
    monkeypatch.setenv("LOWKIQ_NAMESPACE", app.settings.namespace)
    asked = CliRunner().invoke(cli, ["cancel", "a", "1"], input="n\n")
    assert asked.exit_code == 1 and "Other jobs wait for 1" in asked.output and a.queries.fetch(["1"])
    assert CliRunner().invoke(cli, ["cancel", "a", "alone"]).output == "1 cancelled\n"
    assert "1 cancelled" in CliRunner().invoke(cli, ["cancel", "a", "1", "--yes"]).output
    burst(app)
    assert not b.queries.held()
