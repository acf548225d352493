"""The API's incidents, what nodes are asked for, and their dumps."""

from __future__ import annotations

import msgspec

from lowkiq.admin.beats.dumps import read_dump, read_dumps
from lowkiq.admin.beats.hands import HandRequest, ask, read_hand
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.errors import short
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import ApiCall, Reply, operation
from lowkiq.web.api.replies import DumpReply, DumpsReply, HandQuestion, IncidentsReply
from lowkiq.web.api.requests import IncidentsQuery
from lowkiq.web.security.paths import prefix_of
from lowkiq.web.snapshot import Snapshot


@operation("GET", "/api/v1/incidents", query=IncidentsQuery)
def incidents(call: ApiCall) -> IncidentsReply:
    """What happened to nodes and queues, and what people did, for 30 days, the newest first."""
    chosen = msgspec.structs.asdict(call.query)
    limit, cursor = chosen.pop("limit"), chosen.pop("cursor") or ""
    found = read_incidents(call.backend.caller, call.backend.namespace, **chosen, limit=limit + 1, cursor=cursor)
    return IncidentsReply(found[:limit], found[limit - 1].key if len(found) > limit else None)


@operation(
    "POST",
    "/api/v1/nodes/{node}/actions",
    description="The node hears within seconds, and does it at most once; the answer tells how far it is. Nobody can "
    "stop a node from here.",
    body=HandQuestion,
    replies={202: [HandRequest]},
    refusals={404: "There is no such node.", 409: "It does not hear: so much waits for it already."},
    examples={"dump": {"action": "dump"}, "restart": {"action": "restart"}},
)
def ask_node(call: ApiCall, snapshot: Snapshot) -> Reply:
    """Ask a node to be quiet, to resume, to be restarted, or for a dump of its threads."""
    name = str(call.request.path_params["node"])
    if snapshot.node(name) is None:
        raise Rejected(404, f"no node {short(name)}, or no longer: GET /api/v1/nodes has their names")
    made = ask(call.backend.caller, call.backend.namespace, name, call.body.action, call.who)
    return Reply(202, made, {"Location": f"{prefix_of(call.request.scope)}/api/v1/hands/{made.id}"})


@operation("GET", "/api/v1/hands/{id}", refusals={404: "There is no such request, or no longer."})
def hand(call: ApiCall) -> HandRequest:
    """How far a node is with what it was asked for."""
    _, found = read_hand(call.backend.caller, call.backend.namespace, call.id)
    if found is None:
        raise Rejected(404, f"no request {short(call.id)}: a day later it is forgotten")
    return found


@operation("GET", "/api/v1/dumps")
def dumps(call: ApiCall) -> DumpsReply:
    """The last dumps of nodes that were asked for from afar, the newest first."""
    return DumpsReply(read_dumps(call.backend.caller, call.backend.namespace))


@operation("GET", "/api/v1/dumps/{id}", refusals={404: "There is no such dump, or no longer."})
def dump(call: ApiCall) -> DumpReply:
    """What the threads of a node did."""
    found = read_dump(call.backend.caller, call.backend.namespace, call.id)
    if found is None:
        raise Rejected(404, f"no dump {short(call.id)}: the last 20 are kept, for a week")
    return DumpReply(*found)
