"""The API's incidents, what nodes are asked for, and their dumps."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool

from lowkiq.admin.beats.dumps import read_dump, read_dumps
from lowkiq.admin.beats.hands import HandRequest, ask, read_hand
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.errors import short
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import ApiCall, Reply, operation
from lowkiq.web.api.replies import DumpReply, DumpsReply, HandQuestion, IncidentsReply
from lowkiq.web.api.requests import IncidentsQuery
from lowkiq.web.security.guard import who_of
from lowkiq.web.security.paths import prefix_of


@operation("GET", "/api/v1/incidents", "getIncidents", query=IncidentsQuery)
async def incidents(call: ApiCall) -> IncidentsReply:
    """What happened to nodes and queues, and what people did, for 30 days, the newest first."""
    query: IncidentsQuery = call.query

    def read() -> IncidentsReply:
        backend, limit = call.view.backend, query.limit
        found = read_incidents(
            backend.caller, backend.namespace, queue=query.queue, node=query.node, kind=query.kind, who=query.who,
            since=query.since, until=query.until, limit=limit + 1, cursor=query.cursor or "",
        )  # fmt: skip
        return IncidentsReply(found[:limit], found[limit - 1].key if len(found) > limit else None)

    return await run_in_threadpool(read)


@operation(
    "POST",
    "/api/v1/nodes/{node}/actions",
    "askNode",
    description="The node hears within seconds, and does it at most once; the answer tells how far it is. Nobody can "
    "stop a node from here.",
    body=HandQuestion,
    replies={202: [HandRequest]},
    refusals={404: "There is no such node.", 409: "It does not hear: so much waits for it already."},
    examples={"dump": {"action": "dump"}, "restart": {"action": "restart"}},
)
async def ask_node(call: ApiCall) -> Reply:
    """Ask a node to be quiet, to resume, to be restarted, or for a dump of its threads."""
    body: HandQuestion = call.body
    name, backend = str(call.request.path_params["node"]), call.view.backend
    if (await call.view.snapshots.get()).node(name) is None:
        raise Rejected(404, f"no node {short(name)}, or no longer: GET /api/v1/nodes has their names")
    made = await run_in_threadpool(ask, backend.caller, backend.namespace, name, body.action, who_of(call.request))
    return Reply(202, made, {"Location": f"{prefix_of(call.request.scope)}/api/v1/hands/{made.id}"})


@operation("GET", "/api/v1/hands/{id}", "getHand", refusals={404: "There is no such request, or no longer."})
async def hand(call: ApiCall) -> HandRequest:
    """How far a node is with what it was asked for."""
    backend = call.view.backend
    _, found = await run_in_threadpool(read_hand, backend.caller, backend.namespace, call.id)
    if found is None:
        raise Rejected(404, f"no request {short(call.id)}: a day later it is forgotten")
    return found


@operation("GET", "/api/v1/dumps", "getDumps")
async def dumps(call: ApiCall) -> DumpsReply:
    """The last dumps of nodes that were asked for from afar, the newest first."""
    backend = call.view.backend
    return DumpsReply(await run_in_threadpool(read_dumps, backend.caller, backend.namespace))


@operation("GET", "/api/v1/dumps/{id}", "getDump", refusals={404: "There is no such dump, or no longer."})
async def dump(call: ApiCall) -> DumpReply:
    """What the threads of a node did."""
    backend = call.view.backend
    found = await run_in_threadpool(read_dump, backend.caller, backend.namespace, call.id)
    if found is None:
        raise Rejected(404, f"no dump {short(call.id)}: the last 20 are kept, for a week")
    return DumpReply(*found)
