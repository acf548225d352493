"""The API's writes: actions on jobs by id, and bulks of all that match."""

from __future__ import annotations

from typing import Final

from lowkiq.admin.jobs.actions import actions_of
from lowkiq.admin.jobs.bulks import Bulk, ask_to_stop, read_bulk, read_bulks
from lowkiq.admin.jobs.deeds import DEEDS
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.words import behind_newer
from lowkiq.errors import short
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, Reply, operation
from lowkiq.web.api.replies import BulksReply, Matches, Moved
from lowkiq.web.api.requests import ActionRequest, All, UndoRequest
from lowkiq.web.bulk_runner import TooManyBulks
from lowkiq.web.security.paths import prefix_of

#: Seconds after which another bulk may find a place.
RETRY_AFTER: Final = "10"
NO_BULK: Final = {404: "There is no such bulk, or no longer."}


@operation(
    "POST",
    "/api/v1/queues/{queue}/actions",
    description="Ids are acted on at once. All that match are acted on in the background, at most as many as "
    "matched; to look before, ask with dry_run, then send the number as expected.",
    body=ActionRequest,
    replies={200: [Moved, Matches], 202: [Bulk]},
    refusals=NO_QUEUE
    | {
        409: "More jobs match than expected; or jobs would be revived behind newer payloads of their ids.",
        429: "Too many bulks run already.",
    },
    examples={
        "ids": {"action": "revive", "ids": ["order-1", "order-2"], "view": "morgue"},
        "count": {"action": "delete", "all": {"view": "morgue", "pattern": "order-*"}, "dry_run": True},
        "all": {"action": "delete", "all": {"view": "morgue", "pattern": "order-*"}, "expected": 120},
    },
)
def act(call: ApiCall) -> Reply:
    """Perform now, revive, retry, skip, bury, delete, cancel, hold or release jobs, or have them wait no more."""
    body: ActionRequest = call.body
    if (body.ids is None) == (body.all is None):
        raise Rejected(400, "give either ids, with their view, or all")
    if body.all is not None:
        return _act_on_all(call, body, body.all)
    return _act_on_ids(call, body, body.ids or [])


@operation(
    "POST",
    "/api/v1/queues/{queue}/undo",
    description="Within a minute of it. Where an id has been pushed again since, its payloads merge.",
    body=UndoRequest,
    refusals=NO_QUEUE,
    examples={"undo": {"undo": "8899557173eaf8ea"}},
)
def undo(call: ApiCall) -> Moved:
    """Undo a deletion that has kept its jobs."""
    body: UndoRequest = call.body

    try:
        return Moved(call.backend.actions(call.queue).undo(body.undo, who=call.who))
    except ValueError as error:
        raise Rejected(400, f"field undo: {error}") from error


@operation("GET", "/api/v1/bulks")
def bulks(call: ApiCall) -> BulksReply:
    """Actions on all that match, the newest first."""
    return BulksReply(read_bulks(call.backend.caller, call.backend.namespace))


@operation("GET", "/api/v1/bulks/{id}", refusals=NO_BULK)
def bulk(call: ApiCall) -> Bulk:
    """How far a bulk has come."""
    return _bulk(call)


@operation(
    "POST",
    "/api/v1/bulks/{id}/stop",
    replies={202: [Bulk]},
    refusals=NO_BULK | {409: "It is over."},
)
def stop_bulk(call: ApiCall) -> Reply:
    """Ask a bulk to stop. What it has done stays done."""
    found = _bulk(call)
    if not ask_to_stop(call.backend.caller, call.backend.namespace, found.id):
        raise Rejected(409, f"bulk {found.id} is {_bulk(call).state}: there is nothing to stop")
    return Reply(202, _bulk(call))


def _act_on_ids(call: ApiCall, body: ActionRequest, ids: list[str]) -> Reply:
    if body.dry_run or body.expected is not None:
        raise Rejected(400, "dry_run and expected go with all: of ids you know how many there are")
    view = body.view or DEEDS[body.action].view
    _require_action(body.action, view)

    if body.out_of_order and body.action != "revive":
        raise Rejected(400, f"out_of_order goes with revive: {body.action} brings no job behind a newer one")
    if body.keep and body.action != "delete":
        raise Rejected(400, f"keep goes with delete: {body.action} can be undone by other actions, or not at all")
    actions = call.backend.actions(call.queue)
    try:
        if body.action == "revive" and not body.out_of_order and (late := actions.behind_newer(ids)):
            raise Rejected(409, f"{behind_newer(late)}: nothing was done; out_of_order does it anyway")
        if not body.keep:
            return Reply(200, Moved(actions.do(body.action, ids, view, who=call.who, why=body.reason)))
        deleted = actions.do_or_keep(body.action, ids, view, who=call.who)
    except (TypeError, ValueError) as error:
        raise Rejected(400, f"field ids: {error}") from error
    return Reply(200, Moved(deleted.moved, deleted.undo))


def _act_on_all(call: ApiCall, body: ActionRequest, all: All) -> Reply:
    if body.view is not None:
        raise Rejected(400, "view goes with ids: all has a view of its own")
    if body.keep:
        raise Rejected(400, "keep goes with ids: a deletion of all that match can't be undone")
    _require_action(body.action, all.view)
    match = Match(all.view, all.pattern, all.error, all.tag)
    count, at_least = call.backend.previews(call.queue).count(match)
    if body.dry_run:
        return Reply(200, Matches(count, at_least))
    if body.expected is not None and count > body.expected:
        raise Rejected(409, f"{count:,} jobs match, {body.expected:,} were expected: nothing was done; look again")
    try:
        started = call.view.bulks.start(call.queue, body.action, match, count, call.who)
    except TooManyBulks as error:
        raise Rejected(429, str(error), {"Retry-After": RETRY_AFTER}) from error
    return Reply(202, started, {"Location": f"{prefix_of(call.request.scope)}/api/v1/bulks/{started.id}"})


def _bulk(call: ApiCall) -> Bulk:
    found = read_bulk(call.backend.caller, call.backend.namespace, call.id)
    if found is None:
        raise Rejected(404, f"no bulk {short(call.id)}: a day after its end it is forgotten")
    return found


def _require_action(action: str, view: str) -> None:
    if action not in (known := actions_of(view)):
        raise Rejected(400, f"action {action} makes no sense in view {view}; there it is {', '.join(known)}")
