"""Finding and choosing jobs: the search over all queues, keys, ranges of boxes, lists that tell the news, and undo."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE
from tests.web.conftest import open_queue


def test_a_job_is_found_chosen_deleted_and_put_back_with_keys(app, make_web, serve, look):
    queues = [open_queue(app, f"queue-{number:02}") for number in range(50)]
    for number in range(6):
        queues[7].push(f"job-{number}", perform_in=1_000.0 + number)
    url = serve(make_web())
    page = look(url)
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("job-3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{url}/queues/queue-07/job?id=job-3")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page).to_have_url(f"{url}/nodes", timeout=PATIENCE)

    page.goto(f"{url}/queues/queue-07")
    expect(page.locator("#on-selected button").first).to_be_disabled()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="job-1")).to_be_focused()
    page.keyboard.press("x")
    boxes = page.locator('input[name="ids"]')
    boxes.nth(3).click(modifiers=["Shift"])
    expect(page.locator('input[name="ids"]:checked')).to_have_count(3)
    expect(page.locator("#selected-count")).to_have_text("3 selected")
    expect(page.locator("#on-all")).to_be_hidden()

    queues[7].push("job-new", perform_in=500.0)
    queues[7].actions.delete(["job-0"])
    expect(page.locator("#news")).to_contain_text("1 new, 1 of these gone", timeout=PATIENCE)
    expect(page.locator("tr.gone")).to_have_count(1)
    expect(page.locator('input[name="ids"]:checked')).to_have_count(3)

    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("It can be undone for 60 seconds.")).to_be_visible()
    page.get_by_role("button", name="Delete 3").click()
    assert len(queues[7].queued()) == 3
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_in_viewport()
    expect(page.locator("[data-left]")).not_to_have_text("60")  # it counts down
    undo.click()
    expect(page.get_by_text("3 jobs put back where they were.")).to_be_visible()
    assert len(queues[7].queued()) == 6


def test_the_search_is_live_and_says_what_has_come_and_what_is_wrong(app, make_web, serve, look):
    queue, other = open_queue(app), open_queue(app, "other")
    url = serve(make_web())
    page = look(f"{url}/search?q=job-1")
    expect(page.locator("#light")).to_have_text("live")
    expect(page.locator("main")).to_contain_text("No job has the id job-1")
    queue.push("job-1", perform_in=4_000_000_000.0)
    expect(page.get_by_role("row", name="job-1")).to_contain_text("Scheduled", timeout=PATIENCE)
    other.push("job-1", perform_in=1.0)
    expect(page.get_by_role("link", name="job-1")).to_have_count(2, timeout=PATIENCE)
    page.goto(f"{url}/search?q=job*")
    expect(page.locator("#light")).to_have_text("live")
    expect(page.get_by_role("link", name="job-1")).to_have_count(2)
    expect(page.locator(".verdict")).to_contain_text("alert")


def test_kinds_of_errors_keep_their_numbers_and_tell_of_new_ones(app, make_web, serve, look):
    queue = open_queue(app)
    lease = queue.lease()

    def fail(id, error):
        queue.push(id)
        lease.claim()
        lease.fail(id, delay=4_000.0, error=error)

    fail("1", "TimeoutError: no answer in 3 s")
    page = look(f"{serve(make_web())}/queues/q?view=retries")
    known = page.locator(".groups tbody tr")
    expect(known.locator("td").first).to_have_text("1")
    known.get_by_role("button", name="Bury").focus()
    fail("2", "TimeoutError: no answer in 4 s")
    fail("3", "KeyError: 'x'")
    expect(page.locator("#news")).to_contain_text("1 new kind of error", timeout=PATIENCE)
    expect(known.locator("td").first).to_have_text("2")
    expect(page.locator(".groups summary")).to_have_text("2 kinds of errors")
    expect(known).to_have_count(1)
    expect(known.get_by_role("button", name="Bury")).to_be_focused()
    queue.actions.delete(["1", "2"])
    expect(known).to_have_class("gone", timeout=PATIENCE)
