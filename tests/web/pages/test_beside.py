"""The page of a shard with several claims, and of an id that waits for its own run."""

from __future__ import annotations

import pytest

from lowkiq.admin.beats.health import ThreadHealth
from tests.beside import run_beside
from tests.web.node_health import tell_health
from tests.web.reading import read, submit, token_of

NODE = "host:1:abc"
PATH = "/queues/q/job?id="


@pytest.fixture
def lease(app, driver):
    lease = run_beside(driver, NODE)
    threads = [
        ThreadHealth(name="t1", worker="W", queue="q", shard=0, ids=["slow"], jobs=1, seconds=11.0),
        ThreadHealth(name="t0", worker="W", queue="q", shard=0, ids=["hot"], jobs=1, seconds=12.0),
    ]
    tell_health(app, number_of_nodes=1, threads=threads)
    return lease


def test_a_job_that_waits_for_its_own_run_says_so(browser, lease):
    text = read(browser, PATH + "hot").text
    assert "Waits for its own run: its id runs, for 12 s so far; what is queued here follows" in text
    assert "Performed by node 0, thread t0, for 12 s so far." in text
    assert "inf" not in text.replace("in flight", "").casefold().split()
    lease.settle(1, rest="ack")
    text = read(browser, PATH + "hot").text
    assert "Due; it is the first, and all 2 threads of node 0 are busy: q has 2." in text
    assert "Performed by" not in text


def test_a_job_of_an_older_claim_is_performed_by_its_own_thread(browser, lease):
    assert "Performed by node 0, thread t1, for 11 s so far." in read(browser, PATH + "slow").text
    text = read(browser, "/queues/q?view=in_flight").text
    assert "Running 2" in text
    assert text.index("hot performed 12 s node 0 thread t0") < text.index("slow performed 11 s node 0 thread t1")


def test_a_claimed_job_of_which_no_beat_tells_comes_next(browser, driver, lease):
    driver.push("new")
    lease.claim_beside()
    assert "new claimed, next" in read(browser, "/queues/q?view=in_flight").text
    assert (
        "Claimed by node 0, and next: its shard has been at hot for 12 s and slow for 11 s."
        in read(browser, PATH + "new").text
    )


def test_a_due_job_behind_several_tells_what_runs(browser, driver, lease):
    driver.push("new")
    found = "Due; it is the first, and all 2 threads of node 0 are busy: q has 2."
    assert found in read(browser, PATH + "new").text


def test_numbers_tell_of_claims_and_of_what_waits(browser, driver, lease):
    text = read(browser, "/queues/q?view=due").text
    assert "queued 1 1 waiting, 0 scheduled" in text
    assert "running 2 2 claims" in text
    assert "lag 0 s" in text
    assert "1 , 1 behind their own run 0 s 2 in 2 claims 0 0" in text, "queued, lag, busy, retries, morgue"
    assert "queued 1 1 waiting, 0 scheduled" in read(browser, "/").text


def test_a_list_has_the_reason(browser, driver, lease):
    driver.push("hot-too")
    page = read(browser, "/queues/q?view=due")
    assert page.text.count("waits for its own run") == 1, "of two jobs"
    jobs = [link for link in page.links() if "/job?" in link]
    assert jobs == ["/queues/q/job?id=hot", "/queues/q/job?id=hot-too"], "at its own due time"


def test_what_an_action_on_it_did_is_told(browser, driver, lease):
    def act(action, *more):
        form = [("token", token_of(browser, PATH + "hot")), ("view", "due"), ("ids", "hot"), ("from", "job")]
        return submit(browser, "/queues/q/actions", ("action", action), *form, *more)

    done = read(browser, act("perform_now").headers["location"]).text
    assert "0 of 1 job made due: the others were due already, wait for their own run, run, or were there" in done
    assert "of an id that runs, only what waits for the end of that run is meant" in act("delete").text
    done = read(browser, act("delete", ("confirmed", "1")).headers["location"]).text
    assert "1 job deleted." in done and "Performed by node 0, thread t0" in done
    assert "Waits for its own run" not in done


def test_each_thread_of_a_shard_is_on_the_page_of_nodes(browser, lease):
    text = read(browser, "/nodes").text
    assert "q 0 slow 11 s q 0 hot 12 s" in text
    assert "2 of 2 threads busy" in text
