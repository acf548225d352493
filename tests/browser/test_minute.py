"""A minute of a live list: what is selected, focused, checked and scrolled to stays, whatever comes and goes."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import expect

from tests.web.conftest import open_queue

#: Refreshes of a page in a minute; Redis is asked anew with every fifth.
MINUTE = 60
#: What is selected of the text, what has the focus, and where that is in the window.
HERE = """() => ({
  selected: getSelection().toString(),
  at: document.activeElement.textContent,
  top: document.activeElement.getBoundingClientRect().top,
})"""


@pytest.mark.long
def test_selection_focus_and_scroll_survive_a_minute_of_a_live_list(app, make_web, serve, look):
    queue = open_queue(app)
    for number in range(90):
        queue.push(f"job-{number:02}", perform_in=1_000.0 + number)
    page = look(f"{serve(make_web())}/queues/q", height=500)
    expect(page.locator("#light")).to_have_text("live")
    for name in ("job-10", "job-11", "job-14"):
        page.locator("tbody tr", has_text=name).locator('input[name="ids"]').check()
    link = page.get_by_role("link", name="job-12")
    link.focus()
    page.evaluate("""() => {
      const text = [...document.querySelectorAll("tbody th a")].find((link) => link.textContent === "job-13");
      getSelection().selectAllChildren(text);
    }""")
    before = page.evaluate(HERE)
    assert before["selected"] == "job-13"
    assert before["at"] == "job-12"
    assert page.evaluate("scrollY") > 0
    numbers = itertools.count()
    for _ in range(MINUTE):
        number = next(numbers)
        queue.push(f"new-{number}", perform_in=500.0 + number)  # before all that is shown
        queue.actions.delete([f"job-{15 + number:02}"])  # and of what is shown, or comes after it
        with page.expect_response(lambda response: "x-lowkiq-live" in response.request.headers):
            pass
    expect(page.locator("#news")).to_contain_text("new")
    assert page.evaluate(HERE) == before | {"top": pytest.approx(before["top"], abs=2)}
    expect(page.locator('input[name="ids"]:checked')).to_have_count(3)


def test_a_row_that_moves_keeps_the_focus(app, make_web, serve, look):
    for name in ("alpha", "beta", "gamma"):
        open_queue(app, name).push("one", perform_in=4_000_000_000.0)
    page = look(f"{serve(make_web())}/?sort=scheduled")
    link = page.locator("tbody").get_by_role("link", name="gamma", exact=True)
    link.focus()
    busy = open_queue(app, "gamma")
    for number in range(5):
        busy.push(f"more-{number}", perform_in=4_000_000_000.0)
    expect(page.locator("tbody tr[data-key]").first).to_contain_text("gamma")
    expect(link).to_be_focused()
