"""Times in the reader's own zone, with UTC when one points at them; ages that go on as long as the page is live."""

from __future__ import annotations

import re
import time

from playwright.sync_api import expect

from lowkiq.admin.past.incidents import NewIncident, note
from tests.browser.conftest import PATIENCE
from tests.web.conftest import open_queue


def test_every_time_is_the_readers_own_and_has_utc_when_one_points_at_it(app, make_web, serve, look):
    queue = open_queue(app)
    queue.push("job", perform_in=4_000_000_000.0)  # 2096-10-02 07:06:40 UTC
    now = app.redis().time()[0]
    evening = now - now % 86_400 - 1_800.0  # yesterday half past eleven in UTC, today in Tokyo
    news = [
        NewIncident(key=f"{number}", kind="death", severity="bad", says=f"number {number}", at=evening + number * 3_600)
        for number in (-10, 0)
    ]
    note(app.caller, app.settings.namespace, news)
    url = serve(make_web())
    options = {"timezone_id": "Asia/Tokyo", "locale": "en-US"}
    page = look(f"{url}/incidents?kind=death", **options)
    expect(page.locator("#zone")).to_contain_text("Times are in your zone, Asia/Tokyo, unless marked UTC")
    expect(page.locator("#light")).to_have_text("live")
    for _ in range(7):  # also what a slow tick brings
        with page.expect_response(lambda response: "x-lowkiq-live" in response.request.headers):
            pass
        days = page.locator(".incidents section")
        expect(days).to_have_count(2)
        told = [" ".join(text.split()) for text in days.all_inner_texts()]
        assert [re.search(r"number (-?\d+)", text)[1] for text in told] == ["0", "-10"]
        assert "08:30:00" in told[0]
        assert "22:30:00" in told[1]
        assert not re.search("UTC|23:30:00|13:30:00", " ".join(told))
    yesterday = time.strftime("%A", time.gmtime(evening))
    expect(days.nth(1).get_by_role("heading")).to_contain_text(yesterday)
    expect(days.nth(0).locator("time")).to_have_attribute("title", re.compile(" 23:30:00 UTC"))

    page.goto(f"{url}/queues/q/job?id=job")
    expect(page.locator(".why").first).to_contain_text("Not due until 2096-10-02 16:06:40, in")
    expect(page.locator(".why").first.locator("time")).to_have_attribute("title", "2096-10-02 07:06:40 UTC")
    page.goto(f"{url}/queues/q?view=scheduled")
    expect(page.locator("#listed time")).to_have_attribute("title", "2096-10-02 16:06:40 (2096-10-02 07:06:40 UTC)")


def test_without_a_script_times_are_utc_and_say_so(app, make_web, serve, look):
    open_queue(app).push("job", perform_in=4_000_000_000.0)
    page = look(f"{serve(make_web())}/queues/q/job?id=job", java_script_enabled=False, timezone_id="Asia/Tokyo")
    expect(page.locator(".why").first).to_contain_text("Not due until 2096-10-02 07:06:40 UTC, in")
    expect(page.locator("#zone")).to_contain_text("Times are UTC")


def test_ages_in_a_list_that_stands_still_go_on_and_stop_when_the_page_does(app, make_web, serve, look):
    queue = open_queue(app)
    queue.push("job", perform_in=app.redis().time()[0] + 3.0)
    page = look(f"{serve(make_web())}/queues/q?view=due")
    age = page.locator("#listed time")
    first = age.inner_text()  # "in 2 s", but for a page that took longer
    expect(age).not_to_have_text(first)
    expect(age).to_have_text(re.compile("^[0-9]+ s ago$"), timeout=PATIENCE)
    page.get_by_role("button", name="Pause").click()
    stood = age.inner_text()
    page.wait_for_timeout(2_500)
    assert age.inner_text() == stood


def test_a_score_that_is_a_time_is_told_as_one(app, make_web, serve, look):
    open_queue(app).push_all(("job", b"p", 4_000_000_000.0, ""), ("job", b"q", 17.0, ""))
    page = look(f"{serve(make_web())}/queues/q/job?id=job", timezone_id="Asia/Tokyo", locale="en-US")
    expect(page.locator(".payloads")).to_contain_text("2096-10-02 16:06:40 · score 4000000000.000000")
    expect(page.locator(".payloads")).to_contain_text("score 17 ·")
