"""Input: a value that makes no sense is refused by its name, and nothing hostile breaks the API."""

from __future__ import annotations

import json

import pytest

#: More than any number field takes, and more digits than Python turns into a number.
HUGE, ENDLESS = 10**400, "9" * 5_000


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("limit=0", "parameter limit is '0', it must be a whole number from 1 to 100"),
        ("limit=101", "parameter limit is '101', it must be a whole number from 1 to 100"),
        ("limit=ten", "parameter limit is 'ten', it must be a whole number from 1 to 100"),
        (f"limit={HUGE}", "it must be a whole number from 1 to 100"),
        (f"limit={ENDLESS}", "it must be a whole number from 1 to 100"),
        ("limit=1e400", "it must be a whole number from 1 to 100"),
        ("limit=NaN", "it must be a whole number from 1 to 100"),
        ("limit=%D9%A3", "it must be a whole number from 1 to 100"),
        ("limit=%00", "parameter limit is '\\x00'"),
        ("view=graveyard", "parameter view is 'graveyard', it must be one of blocked, due, held, in_flight, morgue,"),
        ("view=retries&retry_count=-1", "parameter retry_count is '-1', it must be a whole number from 0 to 1,000,000"),
        ("retry_count=1", "retry_count can't be used with view=due"),
        ("view=retries&retry_count=1&pattern=a", "retry_count can't be used with pattern"),
        ("view=in_flight&cursor=1", "cursor can't be used with view=in_flight"),
        ("limt=1", "unknown parameter `limt`, did you mean `limit`?"),
        ("%00=1", "unknown parameter `\\x00`, known are: "),
        ("limit=1&limit=2", "parameter 'limit' is given twice"),
        ("pattern=%ff", "the query is not UTF-8"),
        ("&".join(f"a{n}=1" for n in range(1_000)), "the query has more than 20 parameters"),
        ("cursor=%00", "parameter cursor: "),
        ("cursor=1:2", "parameter cursor: "),
        (f"cursor={'9' * 60_000}", "parameter cursor: "),
        (f"cursor={ENDLESS}:{ENDLESS}&pattern=a*", "parameter cursor: "),
        ("cursor=99999999999:1&pattern=a*", "parameter cursor: "),
        ("cursor=0:18446744073709551615&pattern=a*", None),
        ("cursor=0:99999999999999999999&pattern=a*", "parameter cursor: "),
        ("cursor=nan:0:0", "parameter cursor: "),
        ("cursor=inf:0:99999999999999999999", "parameter cursor: "),
        ("pattern=[", None),
        ("pattern=%5C", None),
        ("pattern=%00*", None),
        (f"pattern={'*a' * 50}", None),
        ("error=%00", None),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_and_a_strange_one_is_answered(api, failed, query, error):
    reply = api.get(f"queues/q/jobs?{query}", 400 if error else 200)
    assert error is None or error in reply["error"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("queues/q/job", "parameter id is missing"),
        ("queues/q/job?id=", "parameter id is missing"),
        ("queues/q/job?id=" + "x" * 513, "max_id_bytes is 512"),
        ("queues/q/job?id=%ed%a0%80", "the query is not UTF-8"),
        ("queues/q?errors=maybe", "parameter errors is 'maybe', it must be true or false"),
        ("alerts?severity=null", "parameter severity is 'null', it must be"),
        ("incidents?since=null", "parameter since is 'null', it must be"),
        ("queues/q/statistics?days=NULL", "parameter days is 'NULL', it must be"),
        ("queues/q/jobs?view=retries&retry_count=null", "parameter retry_count is 'null', it must be"),
        ("history?span=2h", "parameter span is '2h', it must be one of 1d, 1h, 30d, 365d, 5m"),
    ],
)
def test_other_queries_are_checked_as_well(api, work, path, error):
    assert error in api.get(path, 400)["error"]


@pytest.mark.parametrize("id", ["a\x00b", "<script>", "'\"&?#/..", "\u202e", "é" * 256, "a" * 512, " ", "null", "\r\n"])
def test_a_hostile_id_is_found_and_acted_on(api, work, browse, make_web, id):
    work.perform_async([{"id": id}])
    reply = browse(make_web()).send("GET", "/api/v1/queues/q/job", {}, params={"id": id})
    assert reply.json()["id"] == reply.json()["places"][0]["id"] == id
    assert api.act({"action": "delete", "ids": [id]}) == {"moved": 1}


@pytest.mark.parametrize("queue", ["%00", "..", "%2e%2e%2f", "x" * 5_000, "%ff", "q%0a", "{q:0}"])
def test_a_hostile_queue_is_not_found(api, work, queue):
    api.get(f"queues/{queue}", 404)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            {},
            "field action is missing, it must be one of bury, cancel, delete, hold, perform_now, release, retry, ",
        ),
        ({"action": "explode", "ids": ["a"]}, "field action is 'explode', it must be one of"),
        ({"action": "delete"}, "give either ids, with their view, or all"),
        ({"action": "delete", "ids": ["a"], "all": {"view": "due"}}, "give either ids, with their view, or all"),
        ({"action": "delete", "ids": []}, "field ids is [], it must be a list of 1 to 1,000"),
        ({"action": "delete", "ids": "a"}, "field ids is 'a', it must be a list"),
        ({"action": "delete", "ids": ["a", 7]}, "(ids[1])"),
        ({"action": "delete", "ids": [""]}, "field ids: id must not be empty"),
        ({"action": "delete", "ids": ["x" * 513]}, "max_id_bytes is 512"),
        ({"action": "delete", "ids": ["a"], "view": "in_flight"}, "field view is 'in_flight', it must be one of"),
        ({"action": "delete", "ids": ["a"], "dry_run": True}, "dry_run and expected go with all"),
        ({"action": "delete", "ids": ["a"], "expected": 1}, "dry_run and expected go with all"),
        ({"action": "delete", "all": {"view": "due"}, "view": "due"}, "view goes with ids"),
        ({"action": "delete", "all": {}}, "field all.view is missing"),
        ({"action": "delete", "all": []}, "field all is [], it must be an object"),
        ({"action": "delete", "all": {"view": "due", "patern": "a"}}, "did you mean `all.pattern`?"),
        ({"action": "delete", "all": {"view": "due", "pattern": 7}}, "field all.pattern is 7"),
        (
            {"action": "delete", "all": {"view": "due", "pattern": ""}},
            "field all.pattern is '', it must be a text of 1",
        ),
        ({"action": "delete", "all": {"view": "due", "error": ""}}, "field all.error is '', it must be a text of 1"),
        ({"action": "delete", "all": {"view": "due"}, "expected": -1}, "field expected is -1, it must be a whole"),
        ({"action": "delete", "all": {"view": "due"}, "expected": HUGE}, "field expected is 1000"),
        ({"action": "delete", "all": {"view": "due"}, "expected": 1.5}, "field expected is 1.5"),
        ({"action": "delete", "all": {"view": "due"}, "dry_run": 1}, "field dry_run is 1, it must be true or false"),
        ({"action": "delete", "ids": ["a"], "x\x00": 1}, "unknown field `x\\x00`"),
        ([], "the body is [], it must be a JSON object"),
        ({"action": "delete", "all": {"view": "due", "pattern": "x" * 2_049}}, "a text of 1 to 2,048 characters"),
        ({"action": "delete", "all": {"view": "due", "error": "x" * 65_537}}, "a text of 1 to 65,536 characters"),
        ("delete", "the body is 'delete', it must be a JSON object"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_by_its_field(api, failed, body, error):
    before = failed.dump()
    assert error in api.act(body, 400)["error"]
    assert failed.dump() == before


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"\x00", "the body is not JSON"),
        (b'{"action": "delete", "ids": ["\xff"]}', "the body is not JSON"),
        (b'{"action": "delete", "ids": ["\\ud800"]}', "the body is not JSON"),
        (b'{"action": "delete", "ids": ["a"]} x', "the body is not JSON"),
        (b'{"expected": 1e400}', "the body is not JSON"),
        (b'{"expected": NaN}', "the body is not JSON"),
        (b'{"expected": ' + ENDLESS.encode() + b"}", "the body is not JSON"),
        (b"null", "the body is None, it must be a JSON object"),
        (b"[" * 500_000, "the body is nested too deeply"),
        (b'{"a":' * 100_000, "the body is nested too deeply"),
    ],
)
def test_a_body_that_is_no_json_is_refused(api, work, content, error):
    reply = api.act(None, 400, content=content, headers={"content_type": "application/json"})
    assert error in reply["error"]


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_that_does_not_say_that_it_is_json_is_refused(api, work, content_type):
    body = json.dumps({"action": "delete", "ids": ["a"]}).encode()
    reply = api.act(None, 415, content=body, headers={"content_type": content_type})
    assert "it must be application/json" in reply["error"]


def test_a_body_may_say_its_charset(api, work):
    headers = {"content_type": "Application/JSON; charset=utf-8"}
    assert api.act(None, 200, content=b'{"action": "delete", "ids": ["a"]}', headers=headers) == {"moved": 0}


@pytest.mark.parametrize("number", ["3", "3.0", "30e-1"])
def test_a_whole_number_is_one_however_it_is_written(api, failed, number):
    body = '{"action": "delete", "all": {"view": "due"}, "dry_run": true, "expected": ' + number + "}"
    reply = api.act(None, 200, content=body, headers={"content_type": "application/json"})
    assert reply["matches"] == 3
