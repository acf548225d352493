"""The search over all queues, states and ranges of lists, and the undo of a deletion, on pages and in the API."""

from __future__ import annotations

import time

from lowkiq.admin.past.incidents import read_incidents
from tests.web.conftest import open_queue
from tests.web.pages.test_queue import ids_of
from tests.web.reading import read, submit, token_of


def test_an_id_of_one_queue_opens_at_once_and_of_two_is_listed(browser, app, driver):
    other = open_queue(app, "other")
    driver.push("one")
    driver.push("both", perform_in=time.time() + 1_000)
    other.push("both", perform_in=1.0)
    assert browser.get("/search?q=one").headers["location"] == "/queues/q/job?id=one"
    page = read(browser, "/search?q=both")
    assert ids_of(page) == ["both", "both"]
    assert "both other Waiting" in page.text
    assert "both q Scheduled" in page.text
    pattern = read(browser, "/search?q=b*")
    assert ids_of(pattern) == ["both", "both"] and "what runs is found by its exact id only" in pattern.text
    assert "in queues and morgues: what runs is found by its exact id only" in read(browser, "/search?q=x*").text
    assert "No job has the id <b>" in read(browser, "/search?q=%3Cb%3E").text
    assert "is no cursor" in read(browser, "/search?q=a*&cursor=x", 400).text
    found = browser.get("/api/v1/search?q=both").json()
    assert [(job["queue"], job["state"]) for job in found["jobs"]] == [("other", "Waiting"), ("q", "Scheduled")]


def test_states_part_what_is_queued_and_add_up(browser, driver):
    now = time.time()
    driver.push_all(*((f"w{number}", b"p", "", now - 10 + number) for number in range(3)))
    driver.push("s", perform_in=now + 1_000)
    assert ids_of(read(browser, "/queues/q")) == ["w0", "w1", "w2"]
    assert ids_of(read(browser, "/queues/q?view=scheduled")) == ["s"]
    row = browser.get("/api/v1/queues/q").json()["metrics"]
    assert (row["due"], row["scheduled"], row["length"]) == (3, 1, 4)
    for view, expected in (("waiting", 3), ("scheduled", 1), ("due", 4)):
        assert len(browser.get(f"/api/v1/queues/q/jobs?view={view}").json()["jobs"]) == expected


def test_a_list_begins_with_a_value_and_goes_either_way(browser, driver):
    driver.push_all(*((f"{number}", b"p", "", 1_000.0 + number) for number in range(60)))
    page = read(browser, "/queues/q?from=1010")
    assert ids_of(page)[:2] == ["10", "11"]
    page = read(browser, "/queues/q?from=1010&reverse=1")
    assert ids_of(page)[:2] == ["10", "9"]
    assert page.all("th", aria_sort="descending")
    page = read(browser, "/queues/q?reverse=1")
    seen, path = [], "/queues/q?reverse=1"
    while path:
        page = read(browser, path)
        seen += ids_of(page)
        path = next((link["href"] or "" for link in page.all("a", rel="next")), "").partition("#")[0]
    assert seen == [f"{number}" for number in reversed(range(60))]
    get = "/api/v1/queues/q/jobs?min=1005&max=1007&reverse=true"
    assert [job["id"] for job in browser.get(get).json()["jobs"]] == ["7", "6", "5"]
    assert browser.get("/api/v1/queues/q/jobs?min=nan").status_code == 400


def test_a_deletion_is_undone_on_the_page_and_in_the_api(browser, driver):
    driver.push("1", perform_in=1.0)
    before = driver.queued()
    fields = [("token", token_of(browser, "/queues/q")), ("action", "delete"), ("view", "waiting"), ("ids", "1")]
    done = submit(browser, "/queues/q/actions", *fields, ("confirmed", "1"))
    page = read(browser, done.headers["location"])
    (kept,) = page.all("input", name="undo")
    undone = submit(browser, "/queues/q/undo", fields[0], ("undo", kept["value"] or ""), ("view", "waiting"))
    assert "1 job put back where they were." in read(browser, undone.headers["location"]).text
    assert driver.queued() == before
    headers = {"x_lowkiq_token": browser.get("/api/v1/token").json()["token"]}
    body = {"action": "delete", "ids": ["1"], "keep": True}
    told = browser.send("POST", "/api/v1/queues/q/actions", headers, json=body).json()
    again = browser.send("POST", "/api/v1/queues/q/undo", headers, json={"undo": told["undo"]}).json()
    assert (told["moved"], again["moved"]) == (1, 1)
    assert driver.queued() == before
    assert submit(browser, "/queues/q/undo", fields[0], ("undo", "../x")).status_code == 400


def test_an_undo_of_several_is_kept_with_who_did_it(browser, app, driver):
    driver.push_all(("1", b"p"), ("2", b"p"))
    token = token_of(browser, "/queues/q")
    for path in ("page", "api"):
        deleted = app.actions("q", 1).delete_and_keep("due", ["1", "2"])
        if path == "page":
            submit(browser, "/queues/q/undo", ("token", token), ("undo", deleted.undo))
        else:
            headers = {"x_lowkiq_token": browser.get("/api/v1/token").json()["token"]}
            browser.send("POST", "/api/v1/queues/q/undo", headers, json={"undo": deleted.undo})
    found = read_incidents(app.caller, app.settings.namespace, kind="undo")
    assert [incident.says for incident in found] == ["Undo: 2 jobs of q"] * 2
    assert all(incident.who for incident in found)


def test_a_slow_tick_tells_the_heads_and_no_rows(browser, driver):
    driver.push("1", perform_in=1.0)
    page = read(browser, "/queues/q", x_lowkiq_live="slow")
    assert ids_of(page) == []
    assert page.all("li", data_row="1")
    assert not read(browser, "/queues/q", x_lowkiq_live="tick").all("ul", data_live="heads")
