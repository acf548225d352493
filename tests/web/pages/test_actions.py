"""Actions: asked back where they matter, done once, and told afterwards."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from urllib.parse import urlencode

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from lowkiq import Lowkiq
from lowkiq.admin.jobs.bulks import new_bulk, save
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.queue.shard import Exhausted
from tests.queue.shard_driver import ShardDriver
from tests.support import wait_until
from tests.web.conftest import Browser
from tests.web.reading import Html, read, submit, token_of

ACTIONS = "/queues/q/actions"


@pytest.fixture
def browser(make_web: Callable[..., Starlette], browse: Callable[..., Browser], driver: ShardDriver) -> Browser:
    for number in range(5):
        driver.push(str(number), perform_in=2e9)
    return browse(make_web())


def act(browser: Browser, *fields: tuple[str, str]) -> httpx.Response:
    return submit(browser, ACTIONS, ("token", token_of(browser, "/queues/q?view=due")), *fields)


def confirm(browser: Browser, question: httpx.Response) -> httpx.Response:
    """Presses the button of a page that asks back."""
    assert question.status_code == 200, question.text
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', question.text)
    return submit(browser, ACTIONS, *((name, html.unescape(value)) for name, value in fields))


def bury(driver: ShardDriver, *ids: str) -> None:
    assert driver.actions.bury(ids) == len(ids)


def test_one_job_is_performed_now_at_once(browser: Browser, driver: ShardDriver) -> None:
    response = act(browser, ("action", "perform_now"), ("view", "due"), ("ids", "3"), ("from", "job"))
    assert response.status_code == 303
    assert response.headers["location"] == "/queues/q/job?id=3&done=perform_now&moved=1&of=1"
    assert driver.queued()["3"].perform_in < 2e9
    assert "1 job made due." in read(browser, response.headers["location"]).text


def test_one_dead_job_is_revived_at_once(browser: Browser, driver: ShardDriver) -> None:
    bury(driver, "3")
    response = act(browser, ("action", "revive"), ("view", "morgue"), ("ids", "3"), ("from", "job"))
    assert response.status_code == 303
    assert driver.morgue() == {}


def test_one_dead_job_is_not_revived_unasked_behind_newer_payloads(browser: Browser, driver: ShardDriver) -> None:
    driver.push_all(("a", b"1", 1.0, 1e9), ("a", b"2", 2.0, 1e9))
    lease = driver.lease()
    lease.claim()
    lease.exhaust("a")
    lease.claim()
    question = act(browser, ("action", "revive"), ("view", "morgue"), ("ids", "a"), ("from", "job"))
    assert "a would run behind newer payloads of its id" in Html(question.text).text
    assert driver.morgue().keys() == {"a"}
    assert confirm(browser, question).status_code == 303
    assert driver.morgue() == {}


def test_a_blocked_job_is_seen_and_retried_at_once_and_skipped_when_asked_back(
    browser: Browser, driver: ShardDriver
) -> None:
    driver.push_all(("a", b"1", 1.0, 1e9), ("a", b"2", 2.0, 1e9))
    lease = driver.lease()

    def block() -> None:
        lease.claim()
        lease.settle(exhausted=[Exhausted("a", "boom", "block")])

    block()
    assert "Scheduled 5 Running 0 Retrying 0 Blocked 1" in read(browser, "/queues/q?view=waiting").text
    assert "Retry" in read(browser, "/queues/q?view=blocked").text
    told = read(browser, "/queues/q/job?id=a").text
    assert "Blocked since" in told and "nothing of its id runs until somebody retries it" in told
    assert act(browser, ("action", "retry"), ("view", "blocked"), ("ids", "a"), ("from", "job")).status_code == 303
    block()
    question = act(browser, ("action", "skip"), ("view", "blocked"), ("ids", "a"), ("from", "job"))
    assert "will lose their oldest payload" in Html(question.text).text
    assert confirm(browser, question).status_code == 303
    assert driver.queued()["a"].payloads == {b"2": 2.0}


def test_pages_say_that_a_queue_blocks(app: Lowkiq, browser: Browser) -> None:
    work = app.worker(queue_name="stopping", shards_count=1, max_retry_count=2, when_exhausted="block")(lambda _: None)
    work.perform_async([{"id": "a"}])
    assert "a failing job is tried 3 times, then is blocked" in read(browser, "/queues/stopping").text
    assert "never; 3 tries left, then blocked" in read(browser, "/queues/stopping/job?id=a").text


def test_several_blocked_jobs_that_are_retried_are_an_incident(browser: Browser, driver: ShardDriver) -> None:
    driver.push_all(("a", b"1", 1.0, 1e9), ("b", b"1", 1.0, 1e9))
    lease = driver.lease()
    lease.settle(exhausted=[Exhausted(job.id, "boom", "block") for job in lease.claim()])
    question = act(browser, ("action", "retry"), ("view", "blocked"), ("ids", "a"), ("ids", "b"))
    assert confirm(browser, question).status_code == 303
    (deed,) = read_incidents(driver.caller, driver.shard.namespace, kind="retry")
    assert (deed.says, deed.who) == ("Retry: 2 jobs of q", "anyone at 127.0.0.1")


@pytest.mark.parametrize("action", ["bury", "delete"])
def test_one_job_is_not_buried_or_deleted_unasked(browser: Browser, driver: ShardDriver, action: str) -> None:
    question = act(browser, ("action", action), ("view", "due"), ("ids", "3"), ("from", "job"))
    assert len(driver.queued()) == 5
    assert confirm(browser, question).headers["location"].startswith(f"/queues/q/job?id=3&done={action}&moved=1&of=1")
    assert "3" not in driver.queued()


def test_a_selection_is_asked_back_with_its_count_and_what_will_happen(browser: Browser, driver: ShardDriver) -> None:
    question = act(browser, ("action", "delete"), ("view", "due"), ("ids", "1"), ("ids", "2"))
    text = Html(question.text).text
    assert "Delete 2 queued jobs?" in text
    assert "will be deleted, with all payloads." in text
    assert "It can be undone for 60 seconds." in text
    assert len(driver.queued()) == 5
    done = confirm(browser, question)
    assert done.headers["location"].startswith("/queues/q?view=due&done=delete&moved=2&of=2&undo=")
    assert sorted(driver.queued()) == ["0", "3", "4"]
    assert "2 jobs deleted." in read(browser, done.headers["location"]).text


def test_what_is_there_no_longer_is_told(browser: Browser, driver: ShardDriver) -> None:
    question = act(browser, ("action", "bury"), ("view", "due"), ("ids", "1"), ("ids", "2"))
    driver.actions.delete(["2"])
    done = confirm(browser, question)
    assert (
        "1 of 2 jobs moved to the morgue: the others were there no longer"
        in read(browser, done.headers["location"]).text
    )


def test_an_empty_selection_does_nothing(browser: Browser) -> None:
    response = act(browser, ("action", "delete"), ("view", "due"))
    assert "No job was selected" in read(browser, response.headers["location"]).text


def test_all_that_match_are_counted_asked_back_and_moved_in_the_background(
    browser: Browser, driver: ShardDriver
) -> None:
    driver.push("order-1", perform_in=2e9)
    question = act(browser, ("action", "bury"), ("view", "due"), ("all", "1"), ("pattern", "order-%2A"))
    assert "1 queued job of queue q whose id matches order-* will move to the morgue" in Html(question.text).text
    assert driver.morgue() == {}
    path = confirm(browser, question).headers["location"]
    assert path.startswith("/bulks/")
    wait_until(lambda: "done" in read(browser, path).text)
    assert list(driver.morgue()) == ["order-1"]
    page = read(browser, path)
    assert page.all("progress", max="1", value="1")
    assert "Seen 1 of 1 (100 %)" in page.text
    assert "Bury 1 queued job" in read(browser, "/bulks").text


def test_a_running_bulk_can_be_stopped(browser: Browser, driver: ShardDriver, app: Lowkiq) -> None:
    bulk = new_bulk(app.caller, app.settings.namespace, "q", "bury", Match("due"), 100)
    page = read(browser, f"/bulks/{bulk.id}")
    assert page.all("button", form="stop")
    stopped = submit(browser, f"/bulks/{bulk.id}/stop", ("token", token_of(browser, f"/bulks/{bulk.id}")))
    assert stopped.headers["location"] == f"/bulks/{bulk.id}"
    page = read(browser, f"/bulks/{bulk.id}")
    assert "stopping It ends after the step that it is at." in page.text
    assert not page.all("button", form="stop")


def test_a_bulk_whose_jobs_went_meanwhile_is_done_and_not_full(browser: Browser, app: Lowkiq) -> None:
    namespace = app.settings.namespace
    bulk = new_bulk(app.caller, namespace, "q", "bury", Match("due"), 29)
    save(app.caller, namespace, msgspec.structs.replace(bulk, state="done"))
    for path in (f"/bulks/{bulk.id}", "/bulks"):
        (bar,) = read(browser, path).all("progress")
        assert (bar["value"], bar["max"]) == ("0", "29")
    assert "0 of 29: the others were there no longer" in read(browser, f"/bulks/{bulk.id}").text
    save(app.caller, namespace, msgspec.structs.replace(bulk, state="done", total=0))
    (bar,) = read(browser, f"/bulks/{bulk.id}").all("progress")
    assert (bar["value"], bar["max"]) == ("1", "1")


def test_a_bulk_of_nothing_has_no_button(browser: Browser) -> None:
    question = act(browser, ("action", "revive"), ("view", "morgue"), ("all", "1"))
    assert "there is nothing to do" in question.text
    assert "confirmed" not in question.text


@pytest.mark.parametrize(
    ("action", "view"),
    [("revive", "due"), ("perform_now", "morgue"), ("delete", "in_flight"), ("drop", "due"), ("", "")],
)
def test_an_action_that_a_view_has_not_is_refused(
    browser: Browser, driver: ShardDriver, action: str, view: str
) -> None:
    response = act(browser, ("action", action), ("view", view), ("ids", "1"), ("confirmed", "1"))
    assert response.status_code == 400
    assert len(driver.queued()) == 5


def test_without_a_token_nothing_is_done(browser: Browser, driver: ShardDriver) -> None:
    fields = (("action", "delete"), ("view", "due"), ("ids", "1"), ("confirmed", "1"))
    assert submit(browser, ACTIONS, *fields).status_code == 403
    assert len(driver.queued()) == 5


def test_a_read_only_view_refuses(
    make_web: Callable[..., Starlette], browse: Callable[..., Browser], browser: Browser, driver: ShardDriver
) -> None:
    fields = (("token", token_of(browser, "/queues/q?view=due")), ("action", "delete"), ("view", "due"), ("ids", "1"))
    assert submit(browse(make_web(read_only=True)), ACTIONS, *fields, ("confirmed", "1")).status_code == 403
    assert len(driver.queued()) == 5


def test_more_ids_than_a_page_has_are_refused(browser: Browser) -> None:
    response = act(browser, ("action", "delete"), ("view", "due"), *(("ids", str(number)) for number in range(1_001)))
    assert response.status_code == 400
    assert "1,001 ids are too many" in response.text


@pytest.mark.parametrize(
    "query",
    [{"done": "<b>hello", "moved": "1", "of": "1"}, {"done": "delete", "moved": "x", "of": "1"}, {"done": "delete"}],
)
def test_nobody_can_put_words_into_a_link(browser: Browser, query: dict[str, str]) -> None:
    page = read(browser, f"/queues/q?view=due&{urlencode(query)}")
    assert not page.all("div", class_="message")
    assert "hello" not in page.source


def test_a_queue_that_is_unknown_is_not_found(browser: Browser) -> None:
    fields = (("token", token_of(browser, "/queues/q?view=due")), ("action", "delete"), ("view", "due"), ("ids", "1"))
    assert submit(browser, "/queues/nope/actions", *fields).status_code == 404
