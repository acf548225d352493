"""Tags in the API and on the page of a queue: jobs are found by them, counted, and acted on."""

from __future__ import annotations

import pytest

from lowkiq.web.pages import jobs as page_of_jobs
from tests.queue.shard_driver import FUTURE
from tests.support import wait_until
from tests.web.conftest import open_queue
from tests.web.reading import read


@pytest.fixture
def tagged(app):
    """Five jobs of two shards: three of eu, two of them of vip, and one without a tag; one is in the morgue."""
    app.worker(queue_name="q", shards_count=2)(lambda payloads_by_id: None)
    open_queue(app, shards_count=2)
    open_queue(app, "untagged").push("x")
    worker = app.workers["q"]
    tags = {"a": ["eu"], "b": ["eu", "vip"], "c": ["us"], "d": ["eu", "vip"]}
    worker.perform_async({"id": id, "perform_in": FUTURE, "tags": words} for id, words in tags.items())
    worker.perform_async([{"id": "plain", "perform_in": FUTURE}])
    worker.actions.bury(["d"])
    return worker


def test_the_most_frequent_are_told_with_their_ids(api, tagged):
    assert api.get("queues/q/tags") == {
        "queue": "q",
        "tags": [{"tag": "eu", "ids": 3}, {"tag": "vip", "ids": 2}, {"tag": "us", "ids": 1}],
    }
    assert [row["tag"] for row in api.get("queues/q/tags?limit=1")["tags"]] == ["eu"]
    tagged.actions.cancel(["c"])
    assert [row["tag"] for row in api.get("queues/q/tags")["tags"]] == ["eu", "vip"]
    api.get("queues/ghost/tags", 404)


def test_jobs_are_found_and_acted_on_by_tag(api, tagged):
    assert {job["id"]: job["tags"] for job in api.get("queues/q/jobs?tag=eu")["jobs"]} == {
        "a": ["eu"], "b": ["eu", "vip"]
    }  # fmt: skip
    assert [job["id"] for job in api.get("queues/q/jobs?view=morgue&tag=vip")["jobs"]] == ["d"]
    body = {"action": "delete", "all": {"view": "due", "tag": "eu"}}
    assert api.act(body | {"dry_run": True})["matches"] == 2
    api.act(body, 202)
    wait_until(lambda: {job["id"] for job in api.get("queues/q/jobs")["jobs"]} == {"c", "plain"})
    assert api.get("queues/q/tags")["tags"][0] == {"tag": "eu", "ids": 1}


@pytest.mark.parametrize("query", ["view=in_flight&tag=eu", "view=retries&tag=eu&retry_count=1", "tag=eu&reverse=true"])
def test_what_a_tag_can_t_be_used_with_is_refused(api, tagged, query):
    assert "can't be used with" in api.get(f"queues/q/jobs?{query}", 400)["error"]


def test_the_page_of_a_queue_names_its_tags(browser, tagged, monkeypatch):
    page = read(browser, "/queues/q?view=due")
    assert "Tags eu 3 vip 2 us 1" in page.text
    links = [link["href"] for link in page.all("a", **{"class": "tag"})]
    assert "/queues/q?view=due&tag=vip#jobs" in links
    assert "Only with the tag vip" in read(browser, "/queues/q?view=due&tag=vip").text
    monkeypatch.setattr(page_of_jobs, "MOST_TAGGED_SHARDS", 1)
    assert "Tags eu" not in read(browser, "/queues/q?view=due").text
    assert "Tags" not in read(browser, "/queues/untagged?view=due").text
