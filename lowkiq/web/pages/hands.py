"""Hands: what people ask of one node, from its card; the answers; and the dumps that were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.beats.dumps import Dump, read_dump, read_dumps
from lowkiq.admin.beats.hands import HANDS, HandName, ask, read_hand
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.words import age, printable
from lowkiq.web.pages.live import LivePages, Visit, page
from lowkiq.web.view import View

NOT_HEARD: Final = (
    "The node does not hear: it may hang, be cut off from Redis, or be older than this view. See its last beat, its "
    "machine, and its log."
)
#: State of a request → how it looks, and what it means where the node has not told more.
STATES: Final[Mapping[str, tuple[str, str]]] = {
    "asked": ("", "The node was rung, and has not heard yet."),
    "heard": ("", "The node has heard."),
    "doing": ("warn", ""),
    "done": ("good", ""),
    "refused": ("bad", ""),
    "gone": ("bad", ""),
    "not heard": ("bad", NOT_HEARD),
}


def routes(pages: LivePages) -> list[BaseRoute]:
    """Questions, requests and dumps."""
    view = pages.view

    def question(visit: Visit) -> Response:
        action, node = _action(visit.query.get("action", "")), _node(visit)
        return page(
            view, visit.request, "hand_question.html", node=node.node, name=_name(node), action=action,
            wording=HANDS[action], obstacle=_obstacle(node, action),
        )  # fmt: skip

    def act(visit: Visit) -> Response:
        action, node = _action(visit.form.get("action", "")), _node(visit)
        made = ask(view.backend.caller, view.backend.namespace, node.node, action, visit.who)
        return visit.go(f"/hands/{made.id}")

    def text(request: Request) -> Response:
        dump, text = _dump(view, str(request.path_params["id"]))
        disposition = f'attachment; filename="dump-{dump.id}.txt"'
        return PlainTextResponse(text, headers={"Content-Disposition": disposition})

    return [
        pages.deed("/nodes/{node}/actions", question, "GET"),
        pages.deed("/nodes/{node}/actions", act),
        pages.route("/hands/{id}", "hand.html", _build_hand),
        pages.route("/dumps", "dumps.html", _build_dumps),
        pages.route("/dumps/{id}", "dump.html", _build_dump),
        Route("/dumps/{id}/text", text),
    ]


def _build_hand(view: View, visit: Visit) -> Mapping[str, Any]:
    backend = view.backend
    now, request = read_hand(backend.caller, backend.namespace, str(visit.request.path_params["id"]))
    if request is None:
        raise HTTPException(404, "There is no such request. They are kept for a day.")
    state = "not heard" if request.is_unheard(now) else request.state
    look, explained = STATES[state]
    node = visit.snapshot.node(request.node)
    if request.says:
        explained = f"{printable(request.says[:1].upper() + request.says[1:], 500)}."
    return {
        "hand": request,
        "wording": HANDS[request.action],
        "name": _name(node) if node else "a node that is gone",
        "stands": state,
        "look": look,
        "explained": explained,
    }


def _build_dumps(view: View, visit: Visit) -> Mapping[str, Any]:
    return {"dumps": read_dumps(view.backend.caller, view.backend.namespace) if visit.reads else []}


def _build_dump(view: View, visit: Visit) -> Mapping[str, Any]:
    dump, text = _dump(view, str(visit.request.path_params["id"]))
    return {"dump": dump, "text": text}


def _dump(view: View, id: str) -> tuple[Dump, str]:
    found = read_dump(view.backend.caller, view.backend.namespace, id)
    if found is None:
        raise HTTPException(404, "There is no such dump. The last 20 are kept, for a week.")
    return found


def _node(visit: Visit) -> NodeHealth:
    name = str(visit.request.path_params["node"])
    node = visit.snapshot.node(name)
    if node is None:
        raise HTTPException(404, f"There is no node {printable(name, 100)}, or no longer.")
    return node


def _action(text: str) -> HandName:
    if text not in HANDS:
        raise HTTPException(400, "There is no such action here.")
    return cast("HandName", text)


def _obstacle(node: NodeHealth, action: HandName) -> str:
    if node.is_late:
        return f"It has not been heard of for {age(node.beat_age)}, and may not hear."
    if action == "restart" and node.supervisor_pid is None:
        return "It has no supervisor that could start another, and will refuse."
    return ""


def _name(node: NodeHealth) -> str:
    return f"node {node.node_number} on {printable(node.host, 60)}"
