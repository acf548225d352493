"""Charts in a browser: one cursor for all of a group, by pointer and by key, with a readout and marks of incidents."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from lowkiq.admin.past.durations import Durations
from lowkiq.admin.past.incidents import NewIncident, note
from lowkiq.admin.past.statistics import Addition, Times, add, date_of, day_of
from lowkiq.queue import keys
from tests.web.conftest import open_queue


def durations(seconds: float, count: int) -> Durations:
    found = Durations()
    found.add(seconds, count)
    return found


def fill(app):
    """Five minutes of history, an incident a minute ago, and two days of times. Returns the day."""
    redis, namespace = app.redis(), app.settings.namespace
    now = redis.time()[0]
    points = (f"{now - n * 5} {n} 1 2 3 0.5 {9000 - n} 1 {9000 - n} 0" for n in range(59, 0, -1))
    redis.rpush(f"{keys.history(namespace, 'q')}5m", *points)
    says = "It lost a lease while it lived"
    note(app.caller, namespace, [NewIncident(key="x", kind="lease lost", severity="bad", says=says, at=now - 60)])
    today = day_of(now)
    rows = [Addition("q", today - n, Times(durations(2.0 + n, 50), durations(0.5, 50))) for n in range(2)]
    add(app.caller, namespace, "one", 1, rows)
    return today


def test_one_cursor_for_the_charts_of_a_group_with_a_readout(app, make_web, serve, look):
    open_queue(app)
    today = fill(app)
    page = look(f"{serve(make_web())}/queues/q")
    history, times = page.locator("section[aria-labelledby=history]"), page.locator("section[aria-labelledby=times]")
    expect(history.locator(".plot .incident")).not_to_have_count(0)
    expect(times.locator(".plot .incident")).not_to_have_count(0)

    history.locator(".plot").nth(1).hover()
    expect(history.locator(".cursor")).to_have_count(4)
    expect(history.locator(".readout")).to_have_text(re.compile(r"^\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b"))
    expect(times.locator(".cursor")).to_have_count(0)

    times.locator(".charts").focus()
    expect(history.locator(".charts")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(times.locator(".cursor")).to_have_count(2)
    expect(times.locator(".readout")).to_contain_text(f"{date_of(today)} UTC")
    expect(times.locator(".readout")).to_contain_text("It lost a lease while it lived")
    expect(times.locator(".legend b").first).to_have_text("1.99 s")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # of thirty days, a step is half a day
    expect(times.locator(".readout")).to_contain_text(f"{date_of(today - 1)} UTC")
    page.keyboard.press("Escape")
    expect(times.locator(".cursor")).to_have_count(0)
    expect(times.locator(".readout")).to_have_text("")


def test_the_histogram_of_a_day_before_is_a_link_away(app, make_web, serve, look):
    open_queue(app)
    today = fill(app)
    page = look(f"{serve(make_web())}/queues/q")
    times = page.locator("section[aria-labelledby=times]")
    expect(times.locator("table")).to_contain_text("Today, in UTC")
    times.get_by_role("link", name=str(date_of(today - 1))).click()
    expect(times.locator("table")).to_contain_text(f"{date_of(today - 1)}, in UTC")
    expect(times.locator("tbody tr").first).to_contain_text("2.98 s")
    times.get_by_role("link", name="today").click()
    expect(times.locator("tbody tr").first).to_contain_text("1.99 s")
