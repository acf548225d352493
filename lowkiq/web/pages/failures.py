"""Error responses for people and programs: what is wrong and what to do, never a stack trace."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from redis.exceptions import RedisError, ResponseError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowkiq.errors import LowkiqError, UnknownQueue
from lowkiq.log import get_logger
from lowkiq.redaction import redact
from lowkiq.web.pages.live import page
from lowkiq.web.security.paths import is_for_machines, path_in_view
from lowkiq.web.view import View

logger = get_logger()

#: Characters of an error's text that are shown.
_LONGEST_TEXT = 500


@dataclass(frozen=True)
class Problem:
    """An error as a response."""

    status: int
    title: str
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Redis is away, which ends by itself.
    is_down: bool = False


class ErrorResponses:
    """Middleware around the guard: turns what is raised into an answer. A response that has begun just ends."""

    def __init__(self, app: ASGIApp, view: View) -> None:
        self.app = app
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def watch(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception as error:
            if scope["type"] != "http":
                raise
            request = Request(scope)
            problem = explain(self._view, request, error)
            if not has_started:
                await respond(self._view, request, problem)(scope, receive, send)


def respond(view: View, request: Request, problem: Problem) -> Response:
    """A page for people, JSON for machines."""
    if is_for_machines(request.scope):
        return JSONResponse({"error": problem.text}, problem.status, problem.headers)
    # Not what was posted: a script that repeated it would act twice.
    returns = problem.is_down and request.method != "POST"
    last = view.snapshots.last
    context = {"problem": problem, "returns": returns, "heard_at": last.at if last is not None else None}
    response = page(view, request, "message.html", status_code=problem.status, **context)
    response.headers.update(problem.headers)
    return response


def explain(view: View, request: Request, error: Exception) -> Problem:
    """Describes an error; what people have to look into goes to the log."""
    text = str(error)[:_LONGEST_TEXT]
    match error:
        case HTTPException():
            return _explain_http(request, error)
        case RedisError():
            logger.warning("web_redis_down", error=text)
            what = "refuses" if isinstance(error, ResponseError) else "does not answer"
            settings = view.app.settings
            where = "" if settings.redis else f" at {redact(settings.redis_url)}"
            return Problem(503, f"Redis {what}", f"Redis{where} {what}: {text}", {"Retry-After": "2"}, is_down=True)
        case UnknownQueue():
            return Problem(404, "Not Found", text)
        case ValueError():
            return Problem(400, "Bad Request", text)
        case LowkiqError():
            return Problem(409, "Conflict", text)
    # As text: structlog's own tracebacks show local variables, and among them are headers with credentials.
    trace = "".join(traceback.format_exception(error))
    logger.error("web_failed", path=path_in_view(request.scope), traceback=trace)
    return Problem(500, "Internal Server Error", "Something went wrong here. The log says what.")


def _explain_http(request: Request, error: HTTPException) -> Problem:
    title, text, headers = HTTPStatus(error.status_code).phrase, error.detail, error.headers or {}
    # Starlette's own errors have only the phrase for a text; for these we know better.
    if (error.status_code, text) == (404, title):
        text = "There is no such page."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = _methods(request)
        text = f"only {' and '.join(methods)} {'are' if methods[1:] else 'is'} answered here"
        headers = {"Allow": ", ".join(methods)}
    return Problem(error.status_code, title, text, headers)


def _methods(request: Request) -> list[str]:
    """What can be asked of the resource; where there is none, what can be asked of any."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found or {"GET", "HEAD", "POST"})
