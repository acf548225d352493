"""The page of a job: where it is, and why it waits, in a plain sentence."""

from __future__ import annotations

import time

import msgspec

from lowkiq.admin.beats.health import EVENT_LOOP, ThreadHealth
from tests.queue.shard_driver import PAST
from tests.web.node_health import tell_health
from tests.web.reading import Html, read, submit, token_of

NODE = "host:1:abc"
PATH = "/queues/q/job?id="


def running(*ids, shard=0, queue="q"):
    return ThreadHealth(
        name="lowkiq-worker-0", worker="W", queue=queue, shard=shard, ids=list(ids), jobs=len(ids), seconds=12.0
    )


def test_a_job_that_is_nowhere_is_told_as_such(browser, driver):
    assert "it is done, was deleted, or never was" in read(browser, PATH + "1").text
    assert "it is done, was deleted, or never was" in read(browser, PATH + "x" * 2_000).text
    read(browser, "/queues/q/job", 404)


def test_a_job_of_the_future_waits_for_its_time(browser, driver):
    driver.push("1", perform_in=time.time() + 7_200)
    text = read(browser, PATH + "1").text
    assert "Not due until" in text
    assert "it was pushed for then." in text
    assert "Failed never" in text


def test_a_failed_job_tells_how_often_and_when_it_tries_again(browser, driver):
    driver.push("1")
    lease = driver.lease()
    lease.claim()
    lease.fail("1", retry_count=2, delay=600, error="Traceback:\n  File x\nValueError: <no> vat")
    page = read(browser, PATH + "1")
    assert "it failed 3 times and tries again then." in page.text
    assert "Traceback:\n  File x\nValueError: &lt;no&gt; vat" in page.source
    assert "due again, after 3 failures" in page.text


def test_a_due_job_without_a_node_says_so(browser, driver):
    driver.push("1")
    says = "Due, but shard 0 has no node: none has had it so far; no node that is there runs this queue."
    assert says in read(browser, PATH + "1").text


def test_a_due_job_behind_others_tells_how_many_and_what_runs(browser, app, driver):
    driver.push("running", perform_in=1.0)
    driver.lease(NODE).claim()
    for number in range(3):
        driver.push(f"{number}", perform_in=10.0 + number)
    tell_health(app, number_of_nodes=1, threads=[running("running"), ThreadHealth(name="idle")])
    text = read(browser, PATH + "2").text
    assert "Due; 2 jobs are before it in shard 0, which has been at running for 12 s." in text
    assert "Due; it is the first in shard 0, which has been at running" in read(browser, PATH + "0").text


def test_a_due_job_of_a_quiet_node_says_so(browser, app, driver):
    driver.push("1")
    driver.lease(NODE)
    tell_health(app, number_of_nodes=1, state="quiet")
    assert "Due, but node 0, which has shard 0, is quiet: it takes no new jobs." in read(browser, PATH + "1").text


def test_a_due_job_of_busy_threads_says_so(browser, app, driver):
    driver.push("1")
    driver.lease(NODE)
    tell_health(app, number_of_nodes=1, threads=[running("x", shard=7)])
    assert "it is the first, and the only thread of node 0 is busy: q has 1." in read(browser, PATH + "1").text


def test_payloads_pushed_while_an_id_is_in_flight_follow_it(browser, app, driver):
    driver.push("1", payload=b'"first"')
    driver.lease(NODE).claim()
    driver.push("1", payload=b'"second"')
    tell_health(app, number_of_nodes=1, threads=[running("1")])
    text = read(browser, PATH + "1").text
    assert "Waits for its own run: its id runs, for 12 s so far; what is queued here follows when that is done." in text
    assert "Performed by node 0, thread lowkiq-worker-0, for 12 s so far." in text
    assert text.index("second") < text.index("first")


def test_a_claimed_job_whose_turn_comes_next_says_so(browser, app, driver):
    driver.push("1")
    driver.lease(NODE).claim()
    tell_health(app, number_of_nodes=1, threads=[running("other")])
    assert "and next: its shard has been at other for 12 s." in read(browser, PATH + "1").text


def test_a_job_of_the_morgue_waits_for_somebody(browser, driver):
    driver.push("1")
    lease = driver.lease()
    lease.claim()
    lease.exhaust("1")
    page = read(browser, PATH + "1")
    assert "nothing runs it until somebody revives it" in page.text
    assert "moved to the morgue" in page.text
    assert page.all("button", value="revive")
    assert not page.all("button", value="perform_now")


def test_payloads_are_indented_json(browser, driver):
    driver.push("1", payload=b'{"b":[1,{"a":null}],"html":"<b>"}')
    source = read(browser, PATH + "1").source
    assert "  &#34;b&#34;: [\n    1," in source
    assert "&lt;b&gt;" in source


def test_a_payload_that_is_no_json_is_shown_raw(browser, driver):
    driver.push("1", payload=b"\x80\x03pickled\xff{")
    assert r"\x80\x03pickled\xff{" in read(browser, PATH + "1").text


def test_a_large_payload_is_cut_and_says_so(browser, driver):
    driver.push("1", payload=b'"' + b"x" * 1_000_000 + b'"')
    page = read(browser, PATH + "1")
    assert "cut: the first 4.0 KiB of 1,000,002 bytes are shown" in page.text
    assert len(page.source) < 20_000


def test_of_many_payloads_the_lowest_are_shown(browser, driver):
    driver.push_payloads("1", 300)
    page = read(browser, PATH + "1")
    assert "300 payloads, the lowest 100 shown" in page.text


def test_hidden_payloads_are_nowhere(make_web, browse, driver):
    driver.push("1", payload=b'"secret"', perform_in=PAST)
    page = read(browse(make_web(payloads=False)), PATH + "1")
    assert "secret" not in page.source
    assert "8 B · hidden (--no-payloads)" in page.text


def test_scores_that_are_times_are_the_pushes_of_the_timeline(browser, driver):
    driver.push("1", payload=b"1", score=1_700_000_000.0, perform_in=1_700_000_100.0)
    driver.push("1", payload=b"2", score=3.0)
    text = read(browser, PATH + "1").text.partition("Timeline")[2]
    assert "2023-11-14 22:13:20 UTC pushed" in text
    assert "2023-11-14 22:15:00 UTC due" in text
    assert text.count("pushed") == 1


def test_buttons_of_a_live_fetch_have_no_token(browser, driver):
    driver.push("1")
    page = read(browser, PATH + "1", x_lowkiq_live="slow")
    assert page.all("button", form="act-due", value="perform_now")
    assert 'name="token"' not in page.source


def test_a_read_only_view_has_no_buttons(make_web, browse, driver):
    driver.push("1")
    page = read(browse(make_web(read_only=True)), PATH + "1")
    assert not page.all("button", name="action")
    assert not page.all("form", method="post")


def test_a_job_that_runs_tells_its_progress_and_can_be_cancelled(browser, app, driver):
    driver.push("1")
    driver.lease(NODE).claim()
    told = msgspec.structs.replace(running("1"), progress=0.4, note="page 3 of 8", to_stop_seconds=2.0)
    tell_health(app, number_of_nodes=1, threads=[told])
    page = read(browser, PATH + "1")
    assert "asked to stop 2.0 s ago 40 % page 3 of 8" in page.text
    assert page.all("progress", value="0.4", max="1")
    assert [button["value"] for button in page.all("button", name="action")] == ["cancel"]
    question = cancel(browser, "1")
    asked = Html(question.text)
    assert "Cancel this job?" in asked.text
    for way in ("CancelledError", "processes are killed", "current().cancelled"):
        assert way in asked.text
    assert "not touched" not in asked.text
    done = cancel(browser, "1", ("confirmed", "1"))
    assert done.status_code == 303
    assert "1 job cancelled." in read(browser, done.headers["location"]).text
    assert app.redis().exists(driver.prefix + b"cancels")


def test_a_queued_job_can_be_cancelled_after_a_question(browser, app, driver):
    driver.push("1")
    assert "Cancel this job?" in cancel(browser, "1").text
    assert driver.queued().keys() == {"1"}
    cancel(browser, "1", ("confirmed", "1"))
    assert driver.queued() == {}


def test_a_job_performed_by_a_task_says_so(browser, app, driver):
    driver.push("1")
    driver.push("2")
    driver.lease(NODE).claim()
    task = msgspec.structs.replace(running("1"), name=EVENT_LOOP)
    tell_health(app, number_of_nodes=1, tasks=1, longest_tasks=[task])
    assert "Performed by node 0, its event loop, for 12 s so far." in read(browser, PATH + "1").text


def test_a_due_async_job_does_not_wait_for_threads(app, make_web, browse, driver):
    @app.worker(queue_name="q", shards_count=1)
    async def act(payloads_by_id): ...

    driver.push("1")
    driver.lease(NODE)
    tell_health(app, number_of_nodes=1, threads=[running("x", shard=7)], tasks=0)
    assert "Due; it is the first in shard 0 of node 0." in read(browse(make_web()), PATH + "1").text


def cancel(browser, id, *fields):
    token = ("token", token_of(browser, PATH + id))
    form = ("view", "due"), ("action", "cancel"), ("ids", id), ("from", "job")
    return submit(browser, "/queues/q/actions", token, *form, *fields)


def test_a_job_is_tracked_from_its_page_pinned_on_the_overview_and_untracked(browser, app, driver):
    driver.push("1")
    address = "/queues/q/job?id=1"

    def press(on):
        token = ("token", token_of(browser, address))
        return submit(browser, "/queues/q/track", token, ("id", "1"), ("on", on))

    assert "Not tracked" in read(browser, address).text
    assert press("1").headers["location"] == f"{address}#history"
    assert "Untrack" in read(browser, address).text
    assert "Tracked jobs" in read(browser, "/").text
    assert address in read(browser, "/").links()
    press("0")
    assert "Not tracked" in read(browser, address).text
    assert "Tracked jobs" not in read(browser, "/").text
    assert submit(browser, "/queues/q/track", ("id", "1"), ("on", "1")).status_code == 403  # no token
