"""The OpenAPI document: valid, complete, and true of what is really answered."""

from __future__ import annotations

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from lowkiq.admin.beats.dumps import keep_dump
from lowkiq.admin.beats.hands import ask
from lowkiq.admin.beats.health import ThreadHealth
from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.actions import ACTIONS
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.past import history
from lowkiq.queue import keys
from lowkiq.version import VERSION
from lowkiq.web import create_app
from tests.queue.shard_driver import PAST, ShardDriver
from tests.web.conftest import TOKEN
from tests.web.node_health import tell_health

#: Operation → a request that it answers, with its body.
REQUESTS = {
    "getStats": ("/api/v1/stats", None),
    "getNodes": ("/api/v1/nodes", None),
    "getAlerts": ("/api/v1/alerts?severity=bad", None),
    "acknowledgeAlerts": ("/api/v1/alerts/acknowledge", {"keys": ["paused:q"], "seconds": 60}),
    "getQueues": ("/api/v1/queues", None),
    "getQueue": ("/api/v1/queues/q?errors=1", None),
    "getOwners": ("/api/v1/queues/q/owners", None),
    "getStatistics": ("/api/v1/queues/q/statistics?days=7", None),
    "getTags": ("/api/v1/queues/q/tags?limit=5", None),
    "getTenants": ("/api/v1/queues/q/tenants?limit=5", None),
    "getHistory": ("/api/v1/history?span=5m&queue=q", None),
    "getJobs": ("/api/v1/queues/q/jobs?view=retries", None),
    "getJob": ("/api/v1/queues/q/job?id=failed", None),
    "search": ("/api/v1/search?q=a", None),
    "undo": ("/api/v1/queues/q/undo", {"undo": "0123456789abcdef"}),
    "act": ("/api/v1/queues/q/actions", {"action": "bury", "ids": ["a"]}),
    "pause": ("/api/v1/queues/q/pause", {"reason": "we count", "wait": 0}),
    "resume": ("/api/v1/queues/q/resume", None),
    "getReshard": ("/api/v1/queues/q/reshard", None),
    "reshard": ("/api/v1/queues/q/reshard", {"shards": 8}),
    "getRecurring": ("/api/v1/recurring?queue=q", None),
    "actOnRecurring": ("/api/v1/queues/q/recurring", {"id": "1", "action": "pause"}),
    "setRecurring": ("/api/v1/queues/q/recurring/set", {"id": "1", "every": "15m"}),
    "getSettings": ("/api/v1/queues/q/settings", None),
    "setSettings": ("/api/v1/queues/q/settings", {"set": {"concurrency": 10}}),
    "getBulks": ("/api/v1/bulks", None),
    "getBulk": ("/api/v1/bulks/{bulk}", None),
    "stopBulk": ("/api/v1/bulks/{bulk}/stop", None),
    "getIncidents": ("/api/v1/incidents?limit=5", None),
    "askNode": ("/api/v1/nodes/h:1:a/actions", {"action": "dump"}),
    "getHand": ("/api/v1/hands/{hand}", None),
    "getDumps": ("/api/v1/dumps", None),
    "getDump": ("/api/v1/dumps/{dump}", None),
    "getFailures": ("/api/v1/queues/q/failures", None),
    "getEvents": ("/api/v1/events?queue=no", None),
    "getTracked": ("/api/v1/tracked", None),
    "track": ("/api/v1/queues/q/track", {"ids": ["a"]}),
    "getToken": ("/api/v1/token", None),
    "getMetrics": ("/metrics", None),
    "getOpenapi": ("/api/v1/openapi.json", None),
}
#: More of them, by what they show.
VARIANTS = {
    "jobs that are due": ("getJobs", "/api/v1/queues/q/jobs?pattern=*", None),
    "jobs in flight": ("getJobs", "/api/v1/queues/q/jobs?view=in_flight", None),
    "a queue without errors": ("getQueue", "/api/v1/queues/q", None),
    "a refused query": ("getJobs", "/api/v1/queues/q/jobs?limit=0", None),
    "an unknown queue": ("getQueue", "/api/v1/queues/no", None),
    "a dry run": ("act", "/api/v1/queues/q/actions", {"action": "bury", "all": {"view": "due"}, "dry_run": True}),
    "a bulk": ("act", "/api/v1/queues/q/actions", {"action": "bury", "all": {"view": "due"}}),
    "too many matches": ("act", "/api/v1/queues/q/actions", {"action": "bury", "all": {"view": "due"}, "expected": 0}),
    "a refused body": ("act", "/api/v1/queues/q/actions", {}),
    "an unknown bulk": ("getBulk", "/api/v1/bulks/no", None),
}


@pytest.fixture
def shard(app):
    """Something of everything: jobs queued, failed and in flight, a node, history and a bulk."""
    app.worker(queue_name="q", shards_count=1)(lambda payloads_by_id: None)
    shard = ShardDriver(app)
    shard.push_all(("a", b"1", 1.0, PAST), ("failed", b'{"n": 1}'), ("flying",))
    lease = shard.lease("host:1:abc")
    lease.claim()
    lease.settle(released=["a"])
    lease.fail("failed")
    thread = ThreadHealth(name="thread-1", worker="q", queue="q", shard=0, ids=["flying"], jobs=1, seconds=2.5)
    tell_health(app, threads=[thread], rss_history=[5], cpu_history=[6.0])
    history.record(app.caller, app.settings.namespace, app.metrics())
    return shard


@pytest.fixture
def web(app):
    return create_app(app, token=TOKEN)


@pytest.fixture
def browser(web, browse):
    return browse(web)


@pytest.fixture
def document(browser):
    return browser.get("/api/v1/openapi.json", authorization=f"Bearer {TOKEN}").json()


def described(document):
    """Operation → method, path, its description."""
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_document_is_valid(document):
    validate(document, cls=OpenAPIV31SpecValidator)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == VERSION


def test_every_route_of_ours_is_described_and_no_other(web, document):
    ours = {
        (method, route.path)
        for route in web.routes
        if isinstance(route, Route) and (route.path.startswith("/api/") or route.path == "/metrics")
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {(method, path) for method, path, _ in described(document).values()} == ours


def test_every_operation_is_asked_for_in_these_tests(document):
    assert described(document).keys() == REQUESTS.keys()


@pytest.mark.parametrize(
    ("operation", "path", "body"),
    [
        *(pytest.param(operation, *request, id=operation) for operation, request in REQUESTS.items()),
        *(pytest.param(*request, id=name) for name, request in VARIANTS.items()),
    ],
)
def test_an_answer_is_what_the_document_says(app, shard, browser, document, operation, path, body):
    method, _, description = described(document)[operation]
    app.redis().hset(keys.queues(app.settings.namespace), "q", "2:1")
    bulk = bulks.new_bulk(app.caller, app.settings.namespace, "q", "bury", Match("due"), 1)
    authorization = {"authorization": f"Bearer {TOKEN}"}
    options = {"json": body} if body is not None else {}
    tell_health(app, node="h:1:a", number_of_nodes=1)
    hand = ask(app.caller, app.settings.namespace, "h:1:a", "dump", "me")
    keep_dump(app.caller, app.settings.namespace, hand.id, "h:1:a", "h", "me", "text")
    address = path.format(bulk=bulk.id, hand=hand.id, dump=hand.id)
    reply = browser.send(method, address, authorization, **options)
    response = description["responses"][str(reply.status_code)]
    media_type = reply.headers["content-type"].partition(";")[0]
    schema = response["content"][media_type]["schema"]
    if media_type == "application/json":
        _check(reply.json(), schema, document)
    expected = (
        400
        if path.endswith(("limit=0", "queue=no")) or body == {}
        else 404
        if "/no" in path and "/nodes" not in path
        else 0
    )
    assert reply.status_code in ({expected} if expected else {200, 202, 409}), reply.text


def test_the_examples_are_what_their_schemas_say(document):
    _, _, act = described(document)["act"]
    content = act["requestBody"]["content"]["application/json"]
    assert content["examples"]
    for example in content["examples"].values():
        _check(example["value"], content["schema"], document)


def test_the_schemas_refuse_what_is_wrong(document):
    """Else the tests above would prove nothing."""
    schema = {"$ref": "#/components/schemas/StatsReply"}
    with pytest.raises(jsonschema.ValidationError):
        _check({"total": {"length": "1"}}, schema, document)


def test_parameters_say_what_they_may_be(document):
    _, _, jobs = described(document)["getJobs"]
    parameters = {parameter["name"]: parameter for parameter in jobs["parameters"]}
    assert parameters["queue"]["in"] == "path"
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 25}
    views = {"due", "waiting", "scheduled", "retries", "blocked", "held", "in_flight", "morgue"}
    assert set(parameters["view"]["schema"]["enum"]) == views
    assert all(parameter["description"] for parameter in parameters.values())
    _, _, job = described(document)["getJob"]
    assert [parameter["required"] for parameter in job["parameters"]] == [True, True]


def test_a_parameter_may_be_empty_as_forms_send_it_and_none_is_longer_than_an_address_can_be(document):
    for _, _, operation in described(document).values():
        for parameter in operation["parameters"]:
            assert parameter.get("allowEmptyValue", False) is not parameter["required"], parameter["name"]
            assert parameter["schema"].get("maxLength", 0) < 4_096, parameter["name"]


def test_a_body_has_no_fields_but_those_that_are_described(document):
    schemas = document["components"]["schemas"]
    bodies = [
        schemas[media["schema"]["$ref"].rpartition("/")[2]]
        for _, _, operation in described(document).values()
        for media in operation.get("requestBody", {}).get("content", {}).values()
    ]
    assert len(bodies) > 5
    assert not any(body["additionalProperties"] for body in [*bodies, schemas["All"]])


@pytest.mark.parametrize("method", ["OPTIONS", "DELETE", "PUT", "POST", "GET"])
def test_a_method_that_is_refused_is_told_which_are_not(browser, document, method):
    for path, methods in document["paths"].items():
        if method.lower() in methods:
            continue
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        reply = browser.send(method, path.format(queue="q", node="n", id="1"), headers, content=b"{}")
        answered = {one.upper() for one in methods} | ({"HEAD"} if "get" in methods else set())
        assert (reply.status_code, set(reply.headers["allow"].split(", "))) == (405, answered), path
        assert all(one in reply.json()["error"] for one in answered)


def test_what_may_be_chosen_is_all_that_the_store_can_do(document):
    _, _, history_of = described(document)["getHistory"]
    spans = next(parameter for parameter in history_of["parameters"] if parameter["name"] == "span")
    assert set(spans["schema"]["enum"]) == set(history.SPANS)
    schemas = document["components"]["schemas"]
    assert set(schemas["All"]["properties"]["view"]["enum"]) == set(ACTIONS)
    assert set(schemas["ActionRequest"]["properties"]["action"]["enum"]) == {
        action for actions in ACTIONS.values() for action in actions
    }


def test_writes_ask_for_the_token_unless_bearer_is_sent(document):
    _, _, act = described(document)["act"]
    assert {"bearer": []} in act["security"]
    assert all("writeToken" in one for one in act["security"] if "bearer" not in one)
    _, _, stats = described(document)["getStats"]
    assert not any("writeToken" in one for one in stats["security"])
    assert "GET /api/v1/token" in document["info"]["description"]


def test_the_server_is_where_the_view_is_mounted(app, browse):
    inner = create_app(app, no_auth=True)
    assert browse(inner).get("/api/v1/openapi.json").json()["servers"] == [{"url": "/"}]
    outer = browse(Starlette(routes=[Mount("/admin/jobs", inner)]))
    assert outer.get("/admin/jobs/api/v1/openapi.json").json()["servers"] == [{"url": "/admin/jobs"}]


def _check(value, schema, document):
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"]} | schema
    jsonschema.Draft202012Validator(whole).validate(value)
