"""Actions: what forms ask to be done to jobs. One job's harmless ones are done at once; all others are asked back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.jobs.actions import actions_of
from lowkiq.admin.jobs.deeds import DEEDS, Deed
from lowkiq.admin.jobs.finder import LONGEST
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.jobs.states import STATES, state_named
from lowkiq.admin.jobs.undo import KEPT_SECONDS, is_deletion
from lowkiq.admin.pauses import MOST_WHY
from lowkiq.admin.words import behind_newer, listed, printable, waited_for
from lowkiq.errors import Refused
from lowkiq.web.pages.live import LivePages, Visit, page
from lowkiq.web.render import formatting
from lowkiq.web.render.templating import as_field, from_field, link
from lowkiq.web.security.guard import Form
from lowkiq.web.view import View


def jobs_of(view: str, count: int) -> str:
    """So many jobs of a view."""
    return formatting.plural(count, *STATES[view].noun)


def result_of(query: Mapping[str, str]) -> str | None:
    """
    What an action did, for the page after it. The address has only its name and numbers: nobody can put words of their
    own into a link to us.
    """
    deed, is_undone = DEEDS.get(query.get("done", "")), query.get("done") == "undo"
    moved, of = _count(query.get("moved")), _count(query.get("of"))
    if query.get("done") == "nothing":
        return "No job was selected: nothing was done."
    if (deed is None and not is_undone) or moved is None or of is None:
        return None
    if is_undone and not moved:
        return f"There was nothing left to undo: deletions are kept for {KEPT_SECONDS} s."
    done, others = (deed.done, deed.others) if deed else ("put back where they were", Deed.others)
    if moved >= of:
        return f"{formatting.plural(moved, 'job')} {done}."
    return f"{moved:,} of {formatting.plural(of, 'job')} {done}: the others {others}."


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004


def undo_of(query: Mapping[str, str]) -> str | None:
    """The name of the deletion that the page after it offers to undo."""
    name = query.get("undo", "")
    return name if query.get("done") == "delete" and is_deletion(name) else None


#: Ids of one selection.
MOST_IDS: Final = 1_000
#: Ids that the question names.
NAMED: Final = 20


@dataclass(frozen=True)
class Order:
    """An action that a form asks for."""

    queue: str
    action: str
    match: Match
    #: Of a selection; empty when all that match are meant.
    ids: list[str]
    is_all: bool
    is_confirmed: bool
    #: How many jobs the question named, when it was about all that match.
    total: int
    #: Whether the page of the job sent it, and the answer goes there.
    is_of_job: bool
    #: Why, for people: of what is held it is kept.
    why: str = ""

    @classmethod
    def of(cls, queue: str, form: Form) -> Order:
        """Raises HTTPException for what no form of ours sends."""
        view, action = form.get("view", ""), form.get("action", "")
        if action not in actions_of(view):
            raise HTTPException(400, "There is no such action here.")
        ids = [from_field(text) for text in form.getlist("ids")]
        if len(ids) > MOST_IDS:
            raise HTTPException(400, f"{len(ids):,} ids are too many: at most {MOST_IDS:,} at a time.")
        if len(form.get("pattern", "")) > LONGEST:
            raise HTTPException(400, f"The pattern is too long: at most {LONGEST:,} characters.")
        total = form.get("total", "")
        return cls(
            queue=queue,
            action=action,
            match=Match(view, *(_optional(form, name) for name in ("pattern", "error", "tag"))),
            ids=ids,
            is_all=form.get("all") == "1",
            is_confirmed=form.get("confirmed") == "1",
            total=int(total) if total.isascii() and total.isdigit() and len(total) < 16 else 0,  # noqa: PLR2004
            is_of_job=form.get("from") == "job" and len(ids) == 1,
            why=form.get("why", "").strip()[:MOST_WHY],
        )

    @property
    def is_harmless(self) -> bool:
        """True when it is done without asking back."""
        return self.is_of_job and DEEDS[self.action].is_harmless

    @property
    def back(self) -> tuple[str, dict[str, str | None]]:
        """The page to return to: a path, and its parameters."""
        if self.is_of_job:
            return f"/queues/{self.queue}/job", {"id": self.ids[0]}
        match = self.match
        narrowed = {"pattern": match.pattern, "error": match.error, "tag": match.tag}
        return f"/queues/{self.queue}", {"view": match.view, **narrowed}


def routes(pages: LivePages) -> list[BaseRoute]:
    """The target of the forms."""
    view = pages.view

    def undo(visit: Visit) -> Response:
        queue, form = str(visit.request.path_params["queue"]), visit.form
        moved = view.backend.actions(queue).undo(form.get("undo", ""), who=visit.who)
        return visit.go(f"/queues/{queue}", view=state_named(form.get("view", "")), done="undo", moved=moved, of=moved)

    def track(visit: Visit) -> Response:
        queue, id = str(visit.request.path_params["queue"]), from_field(visit.form.get("id", ""))
        _track(view, queue, id, is_on=visit.form.get("on") == "1")
        return visit.go(f"/queues/{queue}/job#history", id=id)

    return [
        pages.deed("/queues/{queue}/track", track),
        pages.deed("/queues/{queue}/actions", lambda visit: _answer(view, visit, Order.of(visit.queue(), visit.form))),
        pages.deed("/queues/{queue}/undo", undo),
    ]


def _track(view: View, queue: str, id: str, *, is_on: bool) -> None:
    actions = view.backend.actions(queue)
    try:
        (actions.track if is_on else actions.untrack)([id])
    except ValueError as error:
        raise HTTPException(400, f"{printable(id, 80) or 'Nothing'} can't be tracked: {error}.") from None
    except Refused as error:
        raise HTTPException(409, f"{error}.") from None


def _answer(view: View, visit: Visit, order: Order) -> Response:
    path, query = order.back
    if not order.is_all and not order.ids:
        return visit.go(path, **query, done="nothing")
    late = _behind_newer(view, order)
    if not (order.is_confirmed or (order.is_harmless and not late)):
        return _question(view, visit.request, order, late)
    if order.is_all:
        bulk = view.bulks.start(order.queue, order.action, order.match, order.total, visit.who, order.why)
        return visit.go(f"/bulks/{bulk.id}")
    actions = view.backend.actions(order.queue)
    done = actions.do_or_keep(order.action, order.ids, order.match.view, who=visit.who, why=order.why)
    return visit.go(path, **query, done=order.action, moved=done.moved, of=len(order.ids), undo=done.undo)


def _behind_newer(view: View, order: Order) -> str:
    """Says which jobs would be revived out of order."""
    if order.action != "revive" or order.is_confirmed:
        return ""
    if order.is_all:
        return "Those of which newer payloads run now, or have gone on since they died, run behind them: out of order."
    late = view.backend.actions(order.queue).behind_newer(order.ids)
    return f"{behind_newer(late)}: out of order." if late else ""


def _question(view: View, request: Request, order: Order, late: str) -> Response:
    """Asks back, with the count and what will happen."""
    if order.is_all:
        count, is_more = view.backend.previews(order.queue).count(order.match)
    else:
        count, is_more = len(order.ids), False
    jobs = "this job"
    if order.is_all or len(order.ids) > 1:
        jobs = f"{'at least ' if is_more else ''}{jobs_of(order.match.view, count)}"
    path, query = order.back
    return page(
        view,
        request,
        "confirm.html",
        queue=order.queue,
        order=order,
        deed=DEEDS[order.action],
        count=count,
        jobs=jobs,
        way_back=_way_back(view, order),
        late=late,
        waited_for=_waited_for(view, order),
        conditions=_conditions(order.match) if order.is_all else "",
        fields=_fields(order, count),
        named=order.ids[:NAMED],
        most_why=MOST_WHY,
        unnamed=max(len(order.ids) - NAMED, 0),
        back=link(request, path, **query),
    )


def _way_back(view: View, order: Order) -> str:
    """Says of a deletion whether it can be undone."""
    if order.action != "delete":
        return ""
    if order.is_all:
        return "There is no way back: a deletion of all that match can't be undone, one of a selection can."
    if view.backend.actions(order.queue).can_keep(order.match.view, order.ids):
        return f"It can be undone for {KEPT_SECONDS} seconds."
    return "There is no way back: this is too much to be kept for an undo. Fewer jobs at a time can be undone."


def _waited_for(view: View, order: Order) -> str:
    """Says which other jobs such an end lets go."""
    if order.is_all or order.action not in {"delete", "cancel"}:
        return ""
    found = view.backend.actions(order.queue).waited_for(order.ids)
    return f"{waited_for(found)}." if found else ""


def _conditions(match: Match) -> str:
    """The conditions on jobs, in words."""
    conditions = []
    if match.pattern is not None:
        conditions.append(f"whose id matches {printable(match.pattern)}")
    if match.error is not None:
        conditions.append(f"with the error {printable(match.error) or '(none)'}")
    if match.tag is not None:
        conditions.append(f"with the tag {printable(match.tag)}")
    return listed(conditions)


def _fields(order: Order, count: int) -> list[tuple[str, Any]]:
    """The fields of the question's form, but for the token."""
    fields: list[tuple[str, Any]] = [("action", order.action), ("view", order.match.view), ("confirmed", "1")]
    if order.is_all:
        fields += [("all", "1"), ("total", count)]
    if order.is_of_job:
        fields.append(("from", "job"))
    given = (("pattern", order.match.pattern), ("error", order.match.error), ("tag", order.match.tag))
    fields += [(name, as_field(text)) for name, text in given if text is not None]
    return fields + [("ids", as_field(id)) for id in order.ids]


def _optional(form: Form, name: str) -> str | None:
    return from_field(form[name]) if name in form else None
