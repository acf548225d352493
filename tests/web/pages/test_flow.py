"""A queue is paused and resumed from its page, which shows who did so and why."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import httpx
import pytest
from starlette.applications import Starlette

from lowkiq import Lowkiq
from lowkiq.admin.jobs.states import STATES
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Exhausted
from tests.queue.shard_driver import ShardDriver
from tests.support import wait_until
from tests.web.conftest import Browser
from tests.web.reading import Html, read, submit, token_of


@pytest.fixture
def browser(make_web: Callable[..., Starlette], browse: Callable[..., Browser], driver: ShardDriver) -> Browser:
    driver.push("a")
    return browse(make_web())


def press(browser: Browser, path: str, **fields: str) -> httpx.Response:
    """Presses the button of the page that asks back."""
    question = browser.get(path)
    assert question.status_code == 200, question.text
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', question.text))
    given = {name: html.unescape(value) for name, value in hidden.items()} | fields
    return submit(browser, path, *given.items())


def test_it_is_asked_back_done_and_shown(browser: Browser, driver: ShardDriver) -> None:
    assert "Pause q?" in Html(browser.get("/queues/q/pause").text).text
    done = press(browser, "/queues/q/pause", reason="we count <b>")
    assert (done.status_code, done.headers["location"]) == (303, "/queues/q")
    assert "paused" in driver.names()
    text = wait_until(lambda: "paused by" in (page := read(browser, "/queues/q").text) and page)
    assert "Resume" in text
    assert "paused" in read(browser, "/").text
    assert press(browser, "/queues/q/resume").status_code == 303
    assert "paused" not in driver.names()


def test_a_reason_is_shown_as_it_is(browser: Browser, driver: ShardDriver) -> None:
    driver.actions.pause("<b>we count</b>", who="ann")
    page = wait_until(lambda: "is paused by ann" in (text := browser.get("/queues/q").text) and text)
    assert "&lt;b&gt;we count" in page and "<b>we count" not in page


def test_it_needs_a_queue_and_a_token(browser: Browser, driver: ShardDriver) -> None:
    assert browser.get("/queues/no/pause").status_code == 404
    assert browser.post("/queues/q/pause", {"reason": "x"}).status_code == 403
    assert "paused" not in driver.names()


def test_a_view_that_is_read_only_offers_none_of_it(
    make_web: Callable[..., Starlette], browse: Callable[..., Browser], driver: ShardDriver
) -> None:
    driver.push("a")
    browser = browse(make_web(read_only=True))
    assert "/queues/q/pause" not in browser.get("/queues/q").text
    assert "<button>Set" not in browser.get("/queues/q/settings").text
    for path in ("pause", "settings"):
        assert browser.post(f"/queues/q/{path}", {"reason": "x"}).status_code == 403
    for path in ("pause", "resume"):
        assert browser.get(f"/queues/q/{path}").status_code == 403, "what can't be done is not asked"


def test_a_state_that_is_empty_says_so(browser: Browser) -> None:
    for name, state in STATES.items():
        page = browser.get(f"/queues/q?view={name}")
        assert page.status_code == 200 and state.explained in html.unescape(page.text), state.title


def test_an_id_is_held_and_released_from_its_page(browser: Browser, driver: ShardDriver) -> None:
    page = browser.get("/queues/q/job?id=a")
    assert ">Hold<" in page.text and ">Release<" not in page.text
    fields = ("token", token_of(browser, "/queues/q/job?id=a")), ("ids", "a"), ("from", "job")
    done = submit(browser, "/queues/q/actions", ("action", "hold"), ("view", "due"), *fields)
    assert done.status_code == 303 and "1 job held." in read(browser, done.headers["location"]).text
    assert driver.look().holds().keys() == {"a"}
    (deed,) = read_incidents(driver.caller, driver.shard.namespace, kind="hold")
    assert (deed.says, deed.who) == ("Hold: 1 job of q", "anyone at 127.0.0.1")
    page = browser.get("/queues/q/job?id=a")
    assert ">Release<" in page.text and ">Hold<" not in page.text and "by anyone at 127.0.0.1" in page.text
    done = submit(browser, "/queues/q/actions", ("action", "release"), ("view", "held"), *fields)
    assert done.status_code == 303 and "1 job released." in read(browser, done.headers["location"]).text
    assert not driver.look().holds()


def test_who_holds_says_why(browser: Browser, driver: ShardDriver) -> None:
    page = read(browser, "/queues/q/job?id=a")
    assert page.all("input", name="why")
    fields = ("token", token_of(browser, "/queues/q/job?id=a")), ("action", "hold"), ("view", "due")
    submit(browser, "/queues/q/actions", *fields, ("from", "job"), ("ids", "a"), ("why", " a customer called "))
    assert "by anyone at 127.0.0.1: a customer called" in read(browser, "/queues/q/job?id=a").text
    driver.push_all(("b",), ("c",), ("d",))
    asked = submit(browser, "/queues/q/actions", *fields, ("ids", "b"), ("ids", "c"))
    assert 'name="why"' in asked.text
    submit(browser, "/queues/q/actions", *fields, ("ids", "b"), ("confirmed", "1"), ("why", "stock-taking"))
    assert "stock-taking" in read(browser, "/queues/q/job?id=b").text
    all_of = ("all", "1"), ("total", "9"), ("pattern", "d*"), ("confirmed", "1"), ("why", "all of them")
    submit(browser, "/queues/q/actions", *fields, *all_of)
    wait_until(lambda: "all of them" in read(browser, "/queues/q/job?id=d").text)


def test_held_ids_have_a_tab(browser: Browser, driver: ShardDriver) -> None:
    driver.push("b")
    driver.actions.hold(["a", "not queued"], "a customer called", who="ann")
    wait_until(lambda: "2 held" in browser.get("/queues/q?view=held").text)
    page = browser.get("/queues/q?view=held").text
    listed = page[page.index('id="listed"') :]
    assert "/queues/q/job?id=a" in listed and "/queues/q/job?id=b" not in listed


def change(browser: Browser, *fields: tuple[str, str]) -> httpx.Response:
    return submit(browser, "/queues/q/settings", ("token", token_of(browser, "/queues/q/settings")), *fields)


def test_settings_are_shown_set_and_unset(browser: Browser, driver: ShardDriver) -> None:
    assert change(browser, ("name", "concurrency"), ("value", "7")).status_code == 303
    page = read(browser, "/queues/q/settings").text
    assert "concurrency" in page and "7 set" in page and "anyone at 127.0.0.1" in page
    wrong = change(browser, ("name", "batch_size"), ("value", "<0>"))
    assert wrong.status_code == 400 and "it must be an integer from 1 to 1,000" in Html(wrong.text).text
    assert change(browser, ("name", "batch_sise"), ("value", "1")).status_code == 400
    assert change(browser, ("name", "concurrency"), ("unset", "1")).status_code == 303
    assert "7 set" not in read(browser, "/queues/q/settings").text


def test_the_limit_of_retries_is_the_one_that_nodes_go_by(
    app: Lowkiq, make_web: Callable[..., Starlette], browse: Callable[..., Browser]
) -> None:
    @app.worker(queue_name="q", shards_count=1, max_retry_count=4)
    def jobs(batch: dict[str, list[object]]) -> None: ...

    jobs.perform_async([{"id": "a"}])
    browser = browse(make_web())
    assert "a failing job is tried 5 times" in read(browser, "/queues/q").text
    jobs.actions.set(max_retry_count=1, who="ann")
    wait_until(lambda: "a failing job is tried twice" in read(browser, "/queues/q").text)


def test_a_page_says_that_jobs_wait_for_a_place(browser: Browser, driver: ShardDriver) -> None:
    assert "max_running" not in read(browser, "/queues/q").text
    calls = QueuePlaces(driver.shard.namespace, "q", "one", 15)
    driver.caller.run(calls.take(2, ["one 1"]))
    assert "1 of 2 running (max_running): one 1" in read(browser, "/queues/q").text
    driver.caller.run(calls.take(2, ["one 2", "one 3"]))
    text = wait_until(lambda: "is reached" in (page := read(browser, "/queues/q").text) and page)
    assert "max_running is reached, so jobs wait: 2 of 2 running (max_running): one 2; 1 node waits for a place" in text


def test_what_happens_after_the_last_try_is_what_nodes_go_by(
    app: Lowkiq, make_web: Callable[..., Starlette], browse: Callable[..., Browser]
) -> None:
    work = app.worker(queue_name="q", shards_count=1, max_retry_count=0)(lambda _: None)
    work.perform_async([{"id": "a"}])
    work.actions.set(when_exhausted="block")
    assert "is tried once, then is blocked" in read(browse(make_web()), "/queues/q").text


def test_a_blocked_job_can_be_held(browser: Browser, driver: ShardDriver) -> None:
    lease = driver.lease()
    lease.settle(exhausted=[Exhausted(job.id, "boom", "block") for job in lease.claim()])
    assert ">Hold" in browser.get("/queues/q?view=blocked").text
