"""The overview says what is wrong first, then what all queues hold and do."""

from __future__ import annotations

import concurrent.futures
import re
import time

import pytest

from lowkiq.admin.past.history import record
from lowkiq.web.pages import live, overview
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read

LIVE = {"x_lowkiq_live": "tick"}


def test_an_empty_redis_is_told_as_such(browser):
    page = read(browser, "/")
    assert "No queue yet" in page.text
    assert "No node is there: nothing runs" in page.text
    assert "No history yet" in page.text


def test_a_queue_has_a_row_with_its_numbers(browser, driver):
    driver.push("1")
    driver.push("2")
    driver.push("2", payload=b"another")
    page = read(browser, "/")
    row = page.text.partition("Merged")[2]
    assert row.split()[:5] == ["q", "1", "shard", "unowned", "2"]
    assert "33 %" in row  # one payload of three has joined an id
    assert "/queues/q" in page.links()


def test_what_is_wrong_comes_before_anything_else(browser, app, driver):
    driver.push("1", perform_in=time.time() - 90)
    tell_health(app, number_of_nodes=4)
    text = read(browser, "/").text
    assert "Nodes 1–3 of 4 are missing" in text  # noqa: RUF001 (an en dash, as in print)
    assert "Shard 0 of q has jobs due and no node; the oldest is 1 min" in text
    assert text.index("missing") < text.index("queued")


def test_warnings_of_redis_are_told(browser):
    """The Redis of the tests has no append-only file."""
    page = read(browser, "/")
    assert "No append-only file" in page.text
    assert "/#redis" in page.links()


def test_all_is_well_only_when_it_is(browser):
    assert "All is well" not in read(browser, "/").text


def test_history_is_drawn_for_the_chosen_span(browser, app, driver):
    driver.push("1")
    record(app.caller, app.settings.namespace, app.metrics())
    page = read(browser, "/?span=1h")
    assert "Jobs queued running retrying" in page.text
    assert "queued: at the end 1, lowest 1, highest 1" in page.source
    assert page.all("a", href="/?span=1h", aria_current="true")
    assert len(page.all("svg", role="img")) == 4


@pytest.mark.parametrize("span", ["", "7y", "<script>", "%00"])
def test_a_span_that_is_none_gives_the_usual_one(browser, span):
    assert read(browser, f"/?span={span}").all("a", href="/?span=5m", aria_current="true")


def test_a_page_has_landmarks_and_no_style_or_script_of_its_own(browser):
    page = read(browser, "/")
    assert [len(page.all(tag)) for tag in ("main", "h1", "footer")] == [1, 1, 1]
    assert page.all("a", href="#main")
    assert page.all("html", lang="en")
    assert not page.all("style")
    assert not [
        attributes for _, attributes in page.tags if any(name.startswith(("on", "style")) for name in attributes)
    ]
    assert next(script["src"] for script in page.all("script")).startswith("/static/live.js")


def test_a_live_fetch_has_only_the_parts_that_change_and_no_token(browser, driver):
    driver.push("1")
    page = read(browser, "/", **LIVE)
    parts = {attributes["data-live"] for _, attributes in page.tags if "data-live" in attributes}
    assert {"alerts", "tiles", "queues", "redis"} <= parts
    assert "charts" not in parts
    assert not page.all("header")
    assert 'name="token"' not in page.source


def test_every_fifth_live_fetch_has_the_charts(browser):
    page = read(browser, "/", x_lowkiq_live="slow")
    assert page.all("div", data_live="charts")


def test_a_hundred_live_fetches_are_rendered_once_for_each_snapshot(make_web, browse, monkeypatch):
    rendered = []
    render = live.render
    monkeypatch.setattr(live, "render", lambda *args, **options: rendered.append(1) or render(*args, **options))
    browser = browse(make_web())
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        texts = list(pool.map(lambda _: browser.get("/", **LIVE).text, range(100)))
    snapshots = time.monotonic() - started + 2  # one a second, and one at each end
    assert len(rendered) <= snapshots
    assert all("data-live" in text for text in texts)


def test_a_live_fetch_that_fails_does_not_stop_the_next(make_web, browse, monkeypatch):
    render = live.render
    failures = iter([True])

    def fail_once(*args, **options):
        if next(failures, False):
            raise ValueError("once")
        return render(*args, **options)

    monkeypatch.setattr(live, "render", fail_once)
    browser = browse(make_web())
    assert [browser.get("/", **LIVE).status_code for _ in range(2)] == [400, 200]


def test_queues_are_sorted_by_the_column_that_the_address_names(app, browser, driver):
    for queue, jobs in (("a", 1), ("b", 3), ("c", 2)):
        app.worker(queue_name=queue, shards_count=1)(lambda _: None).perform_async({"id": n} for n in range(jobs))
    driver.push("1")

    def order(address):
        text = read(browser, address).text.partition("Merged")[2]
        return [word for word in text.split() if word in {"a", "b", "c"}][:3]

    assert order("/") == order("/?sort=nonsense") == ["a", "b", "c"]
    assert order("/?reverse=1") == ["c", "b", "a"]
    assert order("/?sort=waiting") == ["b", "c", "a"]
    assert order("/?sort=waiting&reverse=1") == ["a", "c", "b"]
    page = browser.get("/?sort=waiting&span=1h").text
    assert page.count("aria-sort") == 1
    assert 'aria-sort="descending"' in page
    assert "/?span=1h&amp;sort=waiting&amp;reverse=1#queues" in page  # turned round, with the span kept
    assert "/?span=1h&amp;sort=lag#queues" in page


def test_redis_is_named_without_its_password_and_with_the_most_memory_it_had(browser, app, monkeypatch):
    assert app.settings.redis_url in browser.get("/").text
    assert "so far" in read(browser, "/").text
    monkeypatch.setattr(overview, "redact", lambda _: "redis://***@host")
    page = read(browser, "/").text
    assert "redis://***@host" in page
    assert app.settings.redis_url not in page


def test_blocked_and_held_jobs_stand_in_their_queue_s_row(browser, app, driver):
    driver.actions.hold(["a", "b"])
    prefix = driver.shard.prefix
    app.redis().zadd(f"{prefix}blocked", {"x": 1.0})
    page = browser.get("/?sort=held").text
    assert '/queues/q?view=held#jobs">2</a>' in page and '/queues/q?view=blocked#jobs">1</a>' in page


def test_the_lag_of_all_is_of_what_runs(browser, app, driver):
    """What somebody has paused is late on purpose; it hides no other lag."""
    driver.push("1", perform_in=time.time() - 900)
    driver.actions.pause()
    open_queue(app, "other").push("2", perform_in=time.time() - 90)
    text = read(browser, "/").text
    assert re.search(r"lag 1 min 3\d s other", text), text


def test_questions_and_settings_have_alerts_in_their_header(browser, app, driver):
    driver.push("1", perform_in=1.0)  # and no node is there
    for path in ("/queues/q/settings", "/queues/q/pause"):
        read(browser, "/")
        page = read(browser, path)
        assert [link for link in page.all("a") if "verdict" in (link.get("class") or "")], path
        assert "data-live" not in page.source, "else the script would ask for what is not live"
        assert re.match(r"\(\d\) .*\d alert", page.text), page.text
