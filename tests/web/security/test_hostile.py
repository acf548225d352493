"""Ids, payloads, errors and addresses are hostile: nothing of them becomes markup, and their links lead to them."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import pytest

from lowkiq.queue import keys
from lowkiq.queue.unreadable import quoted
from lowkiq.web import create_app
from tests.web.conftest import open_queue
from tests.web.reading import read, submit, token_of

#: Characters that turn text around or can't be seen; none may come out as it is.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
IDS = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "a/b?c=d#e%20f&g h+i;j",
    "../../etc/passwd",
    "..",
    "%2e%2e%00",
    "line\nfeed\r\nreturn\ttab",
    "nul\x00 bell\x07 escape\x1b[31m",
    "\u202egpj.exe",
    "\u2066isolated\u2069\u200b\ufeff",
    "Zoë 見積 🚚",
    " leading and trailing ",
    "-inf",
    "x" * 512,
    "\x01" * 512,
]


def read_safely(browser, path):
    """The source of a page that has nothing of the hostile in its markup."""
    page = read(browser, path)
    assert [script["src"].partition("?")[0] for script in page.all("script")] == ["/static/live.js"]
    assert not page.all("img")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not INVISIBLE.search(page.source)
    return page.source


@pytest.mark.parametrize("id", IDS)
def test_a_hostile_id_is_shown_and_its_link_leads_to_it(browser, driver, id):
    driver.push(id, perform_in=2e9)
    source = read_safely(browser, "/queues/q?view=due")
    link = html.unescape(re.findall(r'href="(/queues/q/job\?[^"]*)"', source)[0])
    assert "Not due until" in read_safely(browser, link)


@pytest.mark.parametrize("id", IDS)
def test_a_hostile_id_can_be_acted_on(browser, driver, id):
    """From the list, over the question, to the deed, by what the forms themselves send."""
    driver.push(id, perform_in=2e9)
    source = read_safely(browser, "/queues/q?view=due")
    box = html.unescape(re.findall(r'name="ids" value="([^"]*)"', source)[0])
    fields = [("token", token_of(browser, "/queues/q?view=due")), ("action", "delete"), ("view", "due"), ("ids", box)]
    question = submit(browser, "/queues/q/actions", *fields)
    sent = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', question.text)
    done = submit(browser, "/queues/q/actions", *((name, html.unescape(value)) for name, value in sent))
    assert "moved=1&of=1" in done.headers["location"]
    assert driver.queued() == {}


@pytest.mark.parametrize("id", IDS)
def test_a_form_carries_only_what_browsers_do_not_change(browser, driver, id):
    """They turn line feeds into two characters, and NUL into another."""
    driver.push(id)
    for path in ("/queues/q?view=due", f"/queues/q/job?id={quote(id, safe='')}"):
        for value in re.findall(r'name="ids" value="([^"]*)"', read(browser, path).source):
            assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", value)


@pytest.mark.parametrize("id", [b"\xff", b"a\xffb", b"bad\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x80\x81" * 100])
def test_an_id_that_is_no_utf_8_is_shown_and_its_link_leads_to_it(browser, driver, id):
    """Pushes refuse it, but Redis is open to others."""
    driver.push("good", perform_in=3e9)
    driver.redis.zadd(driver.key("due"), {id: 2e9})
    driver.redis.zadd(driver.key("retries"), {id: 3})
    driver.redis.hset(driver.key("payloads"), id, b"1.0:1")
    driver.redis.hset(driver.key("errors"), id, b"boom")
    source = read_safely(browser, "/queues/q?view=due")
    bad, good = (html.unescape(link) for link in re.findall(r'href="(/queues/q/job\?[^"]*)"', source))
    assert quote(id) in bad and "id=good" in good
    assert "Not due until" in read_safely(browser, bad)
    for path in ("/queues/q/jobs", "/queues/q?errors=1", f"/queues/q/job?id={quote(id)}"):
        assert browser.get(f"/api/v1{path}").status_code < 500, path


@pytest.mark.parametrize("text", ["</pre><script>alert(1)</script>", "\u202eabc\x00", "{{ config }}"])
def test_hostile_payloads_and_errors_are_text(browser, driver, text):
    driver.push("1", payload=text.encode())
    lease = driver.lease()
    lease.claim()
    lease.fail("1", error=f"{text}\n{text}")
    for path in ("/queues/q", "/queues/q?view=retries", "/queues/q/job?id=1"):
        read_safely(browser, path)
    group = next(link for link in read(browser, "/queues/q?view=retries").links() if "error=" in link)
    assert "job?id=1" in read_safely(browser, group.partition("#")[0])


def test_pages_of_the_largest_payloads_and_errors_stay_small(browser, driver):
    for number in range(30):
        driver.push(f"{number}", payload=b"\x01" * 1_000_000)
    lease = driver.lease()
    lease.claim()
    for number in range(30):
        lease.fail(f"{number}", error="\x01" * 16_000)
    for path in ("/queues/q", "/queues/q?view=retries", "/queues/q/job?id=1"):
        assert len(read_safely(browser, path)) < 200_000


def test_a_job_of_many_large_payloads_stays_small(browser, driver):
    for number in range(100):
        driver.push("1", payload=b"\x01" * 10_000 + b"%d" % number)
    assert len(read_safely(browser, "/queues/q/job?id=1")) < 800_000


@pytest.mark.parametrize("depth", [201, 2_000])
def test_a_payload_nested_too_deeply_to_be_read_is_shown_raw(browser, driver, depth):
    driver.push("1", payload=b"[" * depth + b"]" * depth)
    assert "[[[[" in read_safely(browser, "/queues/q/job?id=1")


def test_a_load_payload_of_the_user_that_fails_does_no_harm(make_app, browse):
    def load(data):
        raise KeyError("<script>")

    app = make_app(load_payload=load)
    open_queue(app).push("1", payload=b"<raw>")
    assert "&lt;raw&gt;" in read_safely(browse(create_app(app, no_auth=True)), "/queues/q/job?id=1")


@pytest.mark.parametrize("name", ["<script>", "a b", "q%2f", "é"])
def test_a_hostile_name_is_no_queue_and_text(browser, app, name):
    """Lowkiq makes none of these, but Redis is open to others."""
    app.redis().hset(keys.queues(app.settings.namespace), name, 1)
    assert f"HDEL {keys.queues(app.settings.namespace)} {quoted(name)}" in html.unescape(read_safely(browser, "/"))
    assert browser.get(f"/queues/{quote(name, safe='')}").status_code == 404


@pytest.mark.parametrize(
    "path", ["/", "/nodes", "/queues/q", "/queues/q/job", "/bulks", "/bulks/x", "/queues/<script>"]
)
@pytest.mark.parametrize(
    "query", ["id=%3Cscript%3E&view=%3Cscript%3E&pattern=%3Cscript%3E&error=%22%3E%00", "%ff=%ff&id=%ff", "&&=&id"]
)
def test_a_hostile_address_is_text(browser, driver, path, query):
    response = browser.get(f"{path}?{query}")
    assert response.status_code in {200, 400, 404}
    assert "<script>" not in response.text
    assert not INVISIBLE.search(response.text)


def test_a_pattern_as_long_as_an_address_may_be_is_cut(browser, driver):
    assert len(read_safely(browser, f"/queues/q?pattern={'%3C' * 10_000}")) < 200_000
