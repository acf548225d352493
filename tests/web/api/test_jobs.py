"""Looks at jobs: pages, one job in all its places, and payloads as they may be shown."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from lowkiq.admin.beats.health import ThreadHealth
from lowkiq.web import create_app
from tests.queue.shard_driver import FUTURE, PAST
from tests.web.api.conftest import Api
from tests.web.node_health import tell_health


def test_jobs_are_paged_by_due_time(api, work):
    work.perform_async({"id": f"id-{n}", "perform_in": PAST + n} for n in range(5))
    first = api.get("queues/q/jobs?limit=2")
    assert [job["id"] for job in first["jobs"]] == ["id-0", "id-1"]
    second = api.get(f"queues/q/jobs?limit=2&cursor={first['next']}")
    third = api.get(f"queues/q/jobs?limit=2&cursor={second['next']}")
    assert [job["id"] for job in (second["jobs"] + third["jobs"])] == ["id-2", "id-3", "id-4"]
    assert third["next"] is None


def test_jobs_are_found_by_pattern_by_error_and_by_retry_count(api, failed):
    def found(query):
        return {job["id"] for job in api.get(f"queues/q/jobs?{query}")["jobs"]}

    assert found("pattern=*e") == {"once", "twice"}
    assert found("view=retries") == {"once", "twice"}
    assert found("view=retries&error=order+%23+is+late&pattern=o*") == {"once"}
    assert found("view=retries&retry_count=1") == {"twice"}
    assert found("view=morgue") == set()
    assert found("pattern=null") == set()


def test_an_empty_parameter_is_one_not_given(api, failed):
    assert len(api.get("queues/q/jobs?pattern=&error=&retry_count=&cursor=&limit=")["jobs"]) == 3


def test_jobs_in_flight_tell_their_thread_if_its_node_has(app, api, shard):
    shard.push_all(("a",), ("b",))
    shard.lease("host:1:abc").claim()
    thread = ThreadHealth(
        name="thread-1", queue="q", shard=0, ids=["a"], jobs=1, seconds=2.5, progress=0.4, note="page 3 of 8",
        to_stop_seconds=1.0, pid=77,
    )  # fmt: skip
    tell_health(app, threads=[thread])
    rows = {job["id"]: job for job in api.get("queues/q/jobs?view=in_flight")["jobs"]}
    assert rows.keys() == {"a", "b"}
    assert rows["a"] | {"where": "claim", "owner": "host:1:abc", "thread": "thread-1", "seconds": 2.5} == rows["a"]
    told = {"progress": 0.4, "note": "page 3 of 8", "to_stop_seconds": 1.0, "pid": 77}
    assert rows["a"] | told == rows["a"]
    assert [rows["b"][name] for name in ("thread", "seconds", *told)] == [None, None, None, "", None, None]


@pytest.mark.parametrize(("id", "told"), [("x" * 201, "x" * 200), ("caf\udce9", "caf\\udce9")])
def test_an_id_that_a_heartbeat_names_otherwise_has_its_thread_too(app, api, shard, id, told):
    shard.push_all((id,), ("b",))
    shard.lease("host:1:abc").claim()
    tell_health(app, threads=[ThreadHealth(name="thread-1", queue="q", shard=0, ids=[told], jobs=1, seconds=2.5)])
    assert [job["thread"] for job in api.get("queues/q/jobs?view=in_flight")["jobs"]] == ["thread-1", None]


def test_a_job_tells_where_it_is_and_why_it_waits(api, failed):
    failed.push("late", b'{"n":1}', score=5.0, perform_in=PAST + 5)
    job = api.get("queues/q/job?id=late")
    assert (job["queue"], job["id"], job["shard"], job["ahead"], job["owner"]) == ("q", "late", 0, 1, None)
    assert job["due_in"] == pytest.approx(PAST - failed.now(), abs=60)
    (place,) = job["places"]
    assert (place["where"], place["retry_count"], place["error"]) == ("queue", -1, None)
    assert place["payloads"] == [
        {"score": 5.0, "size": 7, "is_cut": False, "is_text": False, "is_hidden": False, "value": {"n": 1}}
    ]


def test_a_job_can_be_in_several_places(api, failed, work):
    work.actions.bury(["twice"])
    failed.push("twice", b"{}")
    places = api.get("queues/q/job?id=twice")["places"]
    assert [(place["where"], place["error"], place["due_in"] is None) for place in places] == [
        ("queue", None, False), ("morgue", "order 8 is late", True),
    ]  # fmt: skip


def test_a_job_that_is_nowhere_is_not_found(api, work):
    assert "'gone'" in api.get("queues/q/job?id=gone", 404)["error"]


@pytest.mark.parametrize(
    ("data", "value", "is_text"),
    [
        (b'{"a": [1, null]}', {"a": [1, None]}, False),
        (b"null", None, False),
        (b"not JSON", "not JSON", True),
        (b"\xff\x00<script>", "\ufffd\x00<script>", True),
        (b"1e999", "1e999", True),
        (b"[" * 3_000, "[" * 3_000, True),
        (b"[" * 2_000 + b"]" * 2_000, "[" * 2_000 + "]" * 2_000, True),
        (b"[" * 201 + b"]" * 201, "[" * 201 + "]" * 201, True),
        (b'{"a":' * 200 + b"1" + b"}" * 200, '{"a":' * 200 + "1" + "}" * 200, True),
        (b'{"a":' * 3 + b"1" + b"}" * 3, {"a": {"a": {"a": 1}}}, False),
        ("\u202egnp.\u2066".encode(), "\u202egnp.\u2066", True),
    ],
)
def test_a_payload_is_json_if_it_is_else_text(api, shard, data, value, is_text):
    shard.push("a", data)
    (payload,) = api.get("queues/q/job?id=a")["places"][0]["payloads"]
    assert (payload["value"], payload["is_text"], payload["is_cut"], payload["size"]) == (
        value, is_text, False, len(data),
    )  # fmt: skip


def test_a_payload_that_load_payload_makes_no_json_of_is_text(make_app, browse, shard):
    app = make_app(load_payload=lambda data: object())
    app.worker(queue_name="q", shards_count=1)(lambda payloads_by_id: None)
    shard.push("a", b"raw")
    (payload,) = Api(browse(create_app(app, no_auth=True))).get("queues/q/job?id=a")["places"][0]["payloads"]
    assert (payload["value"], payload["is_text"]) == ("raw", True)


def test_a_megabyte_of_payload_is_cut_and_says_its_size(api, shard):
    shard.push("a", b'"' + b"x" * (1 << 20) + b'"')
    (payload,) = api.get("queues/q/job?id=a")["places"][0]["payloads"]
    assert payload["size"] == (1 << 20) + 2
    assert (payload["is_cut"], payload["is_text"]) == (True, True)
    assert len(payload["value"]) < 10_000


def test_payloads_are_hidden_where_the_view_shows_none(make_api, shard):
    shard.push("a", b'"secret"')
    api = make_api(payloads=False)
    for reply in (api.get("queues/q/job?id=a"), api.get("queues/q/jobs")):
        assert "secret" not in json.dumps(reply)
    (payload,) = api.get("queues/q/job?id=a")["places"][0]["payloads"]
    assert payload | {"size": 8, "is_hidden": True, "value": None} == payload


def test_a_list_has_the_line_of_an_error_and_one_job_its_traceback(api, shard):
    shard.push("a", perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    lease.fail("a", error="E: 17\nmore\n\nTraceback (most recent call last):\n  File x, line 3\n")
    (row,) = api.get("queues/q/jobs?view=retries")["jobs"]
    assert (row["error"], row["traceback"]) == ("E: 17", None)
    (place,) = api.get("queues/q/job?id=a")["places"]
    assert place["error"] == "E: 17"
    assert place["traceback"] == "Traceback (most recent call last):\n  File x, line 3\nE: 17\nmore"


@pytest.fixture
def timed(work):
    """Queued jobs that are due a second apart from FUTURE on, and as many in the morgue."""
    work.perform_async([{"id": str(number), "perform_in": FUTURE + number} for number in range(5)])


@pytest.mark.parametrize(
    ("low", "high", "ids"),
    [
        (f"{FUTURE + 1}", f"{FUTURE + 3}", "123"),
        (f"({FUTURE + 1}", f"({FUTURE + 3}", "2"),
        (f"({FUTURE + 1}", "", "234"),
        ("", f"({FUTURE + 1}", "0"),
        ("-inf", "+inf", "01234"),
        ("-inf", "inf", "01234"),
        ("+inf", "-inf", ""),
    ],
)
@pytest.mark.parametrize("view", ["due", "scheduled"])
def test_a_range_begins_at_a_value_and_goes_both_ways_as_queries_have_it(api, work, timed, view, low, high, ids):
    bounds = {"min": low, "max": high}

    def asked(**more):
        return "".join(job["id"] for job in api.get(f"queues/q/jobs?{urlencode(bounds | more)}")["jobs"])

    assert (asked(view=view), asked(view=view, reverse="true")) == (ids, ids[::-1])
    named = {name: value for name, value in bounds.items() if value}
    assert "".join(job.id for job in work.queries.range_by_perform_in(**named)) == ids
    assert "".join(job.id for job in work.queries.rev_range_by_perform_in(**named)) == ids[::-1]


def test_a_range_has_pages_both_ways(api, timed):
    for reverse, pages in (("", ["12", "34"]), ("&reverse=true", ["43", "21"])):
        path = f"queues/q/jobs?limit=2&min={FUTURE + 1}{reverse}"
        first = api.get(path)
        second = api.get(f"{path}&cursor={first['next']}")
        assert ["".join(job["id"] for job in page["jobs"]) for page in (first, second)] == pages


def test_ranges_are_of_failures_and_of_the_morgue_too(api, work, timed):
    work.actions.bury(["1"])
    buried = api.get("queues/q/jobs?view=morgue")["jobs"][0]["at"]
    for bounds, count in ((f"min={buried}", 1), (f"min=({buried}", 0), (f"max=({buried}", 0), ("min=0", 1)):
        assert len(api.get(f"queues/q/jobs?view=morgue&{bounds}")["jobs"]) == count, bounds
    assert api.get("queues/q/jobs?view=retries&min=(0&max=%2Binf")["jobs"] == []


@pytest.mark.parametrize("bound", ["nan", "(", "((5", "5)", "x", "1e999", "(inf", "9" * 400, "\u0663"])
def test_a_bound_that_is_none_is_refused(api, work, bound):
    error = api.get(f"queues/q/jobs?{urlencode({'min': bound})}", 400)["error"]
    assert "parameter min" in error and "5, (5 for more or less than 5, -inf or +inf" in error
