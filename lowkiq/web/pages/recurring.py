"""Page of recurring jobs: which there are, when each runs next, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.pauses import MOST_WHY
from lowkiq.admin.words import printable
from lowkiq.errors import LowkiqError, SettingsError, short
from lowkiq.recurrence import BACKLOG, Rule
from lowkiq.web.backend import RecurringAction
from lowkiq.web.pages.live import LivePages, Visit, page
from lowkiq.web.render.templating import from_field
from lowkiq.web.view import View

#: Jobs that the page shows: those that run next.
SHOWN: Final = 200


class Wording(NamedTuple):
    """An action as it is asked back."""

    label: str
    will: str


#: What a page asks: actions, and the change of a rule.
Asked: TypeAlias = "RecurringAction | Literal['set']"

WORDINGS: Final[Mapping[Asked, Wording]] = {
    "set": Wording("Change", "It is run by that from its next time on. Its payload stays as it is."),
    "pause": Wording("Pause", "It is not run until somebody resumes it; what is queued of it runs."),
    "resume": Wording("Resume", "It runs again, from its next time on. What was due meanwhile is not made up for."),
    "run_now": Wording("Run now", "It is pushed once more, now. Its times stay as they are."),
    "remove": Wording(
        "Remove",
        "It recurs no more; what is queued of it runs. One of the code stays away until the code says something else "
        "of it.",
    ),
}


def routes(pages: LivePages) -> list[BaseRoute]:
    """The page, the questions and the deeds."""
    view = pages.view

    def question(visit: Visit) -> Response:
        return _ask(view, visit, _action(visit.query.get("action", "")), from_field(visit.query.get("id", "")))

    def deed(visit: Visit) -> Response:
        queue, form = visit.queue(), visit.form
        action, id = _action(form.get("action", "")), from_field(form.get("id", ""))
        try:
            if action == "set":
                view.backend.set_recurring(queue, id, who=visit.who, **_rule_in(form))
            else:
                view.backend.act_on_recurring(queue, id, action, visit.who, form.get("reason", "")[:MOST_WHY])
        except (LowkiqError, ValueError) as error:
            return _ask(view, visit, action, id, str(error))
        return visit.go("/recurring")

    return [
        pages.route("/recurring", "recurring.html", build),
        pages.question("/queues/{queue}/recurring", question),
        pages.deed("/queues/{queue}/recurring", deed),
    ]


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """Those that run next."""
    queue = visit.query.get("queue") or None
    if queue is not None and queue not in visit.snapshot.queues:
        raise HTTPException(404, f"There is no queue {printable(queue, 100)}.")
    jobs, count = view.backend.recurring(queue, SHOWN) if visit.reads else ([], 0)
    return {"queue": queue, "jobs": jobs, "count": count, "shown": SHOWN}


def _ask(view: View, visit: Visit, action: Asked, id: str, error: str = "") -> Response:
    queue, rule = visit.queue(), dict[str, str]()
    if action == "set":
        try:
            known = view.backend.rule_of(queue, id)
        except (LowkiqError, ValueError) as refusal:
            known, error = None, error or str(refusal)
        # What somebody has just typed is shown again.
        rule = {**_fields(known), **visit.form}
    return page(
        view, visit.request, "recurring_question.html", status_code=400 if error else 200, queue=queue, id=id,
        action=action, rule=rule, wording=WORDINGS[action], most=MOST_WHY, error=error,
    )  # fmt: skip


def _fields(rule: Rule | None) -> dict[str, str]:
    """A rule as its form has it."""
    if rule is None:
        return {"every": "", "tz": "", "offset": "", "missed": "merge", "backlog": str(BACKLOG)}
    is_cron = isinstance(rule.every, str)
    return {
        "every": rule.text, "tz": rule.tz if is_cron else "", "offset": "" if is_cron else f"{rule.offset:.15g}",
        "missed": rule.missed, "backlog": str(rule.backlog),
    }  # fmt: skip


def _rule_in(form: Mapping[str, str]) -> dict[str, Any]:
    """What a form asks of a job that recurs. Raises SettingsError: a field is no number."""
    told = {name: form.get(name, "").strip() for name in ("every", "tz", "offset", "missed", "backlog")}
    options: dict[str, Any] = {"every": told["every"], "missed": told["missed"] or "merge", "tz": told["tz"] or None}
    for name, number in (("offset", float), ("backlog", int)):
        if told[name]:
            try:
                options[name] = number(told[name])
            except ValueError:
                raise SettingsError(f"{name} is {short(told[name])}, it must be a number") from None
    return options


def _action(text: str) -> Asked:
    if text not in WORDINGS:
        raise HTTPException(400, "There is no such action here.")
    return cast("Asked", text)
