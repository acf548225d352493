"""Operations of the API, each declared beside its function: routes and OpenAPI document are both made from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_type_hints

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lowkiq.errors import BeingResharded, SettingsError, UnknownQueue
from lowkiq.web.api.input import Rejected, read_body, read_query
from lowkiq.web.api.replies import Failure
from lowkiq.web.backend import Backend
from lowkiq.web.security.guard import who_of
from lowkiq.web.view import View

JSON: Final = "application/json"
#: The refusal of every operation on a queue.
NO_QUEUE: Final = {404: "There is no such queue."}


@dataclass(frozen=True)
class ApiCall:
    """A request, with what was read from it."""

    view: View
    request: Request
    #: An instance of the operation's `query`, and of its `body`.
    query: Any
    body: Any

    @property
    def backend(self) -> Backend:
        """The queues of the view."""
        return self.view.backend

    @property
    def who(self) -> str:
        """Who asks."""
        return who_of(self.request)

    @property
    def queue(self) -> str:
        """The queue in the path."""
        return str(self.request.path_params["queue"])

    @property
    def id(self) -> str:
        """The id in the path."""
        return str(self.request.path_params["id"])


@dataclass(frozen=True)
class Reply:
    """An answer with a status or headers of its own."""

    status: int
    body: msgspec.Struct
    headers: Mapping[str, str] = field(default_factory=dict)


#: What it is called with is the call, and a snapshot if it takes one. One that is no coroutine may block.
Handler = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """
    A method of a path.

    Args:
        replies: status → types that the answer may have. Where `media_type` is not JSON, the handler
            makes the response itself.
        refusals: status → when it is answered with.
        examples: name → a body that can be sent.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    replies: Mapping[int, Sequence[Any]]
    description: str = ""
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)
    examples: Mapping[str, Any] = field(default_factory=dict)
    media_type: str = JSON

    def route(self, view: View) -> Route:
        """The route of the operation. Errors of Redis are left to the application."""

        takes_snapshot = len(inspect.signature(self.handler).parameters) > 1
        is_async = inspect.iscoroutinefunction(self.handler)

        async def endpoint(request: Request) -> Response:
            try:
                query = read_query(request, self.query) if self.query else None
                body = await read_body(request, self.body) if self.body else None
                given = (ApiCall(view, request, query, body), *([await view.snapshots.get()] if takes_snapshot else ()))
                return _respond(await (self.handler(*given) if is_async else run_in_threadpool(self.handler, *given)))
            except Rejected as error:
                return _respond(Reply(error.status, Failure(str(error)), error.headers))
            except BeingResharded as error:
                return _respond(Reply(409, Failure(str(error))))
            except UnknownQueue as error:
                return _respond(Reply(404, Failure(str(error))))
            except SettingsError as error:
                return _respond(Reply(400, Failure(str(error))))

        return Route(self.path, endpoint, methods=[self.method], name=self.name)


def operation(
    method: str,
    path: str,
    *,
    name: str = "",
    replies: Mapping[int, Sequence[Any]] | None = None,
    **details: Any,
) -> Callable[[Handler], Operation]:
    """
    Declares the function below it as an operation; its docstring is the summary, `details` are the other fields.

    Args:
        name: default: that of the function, as getJobs and setSettings are of jobs and set_settings.
        replies: default: 200, with the type that the function returns.
    """

    def declare(handler: Handler) -> Operation:
        return Operation(
            method=method,
            path=path,
            name=name or _name(method, handler.__name__),
            summary=handler.__doc__ or "",
            handler=handler,
            replies=replies or {200: [get_type_hints(handler)["return"]]},
            **details,
        )

    return declare


def _name(method: str, function: str) -> str:
    first, *words = ("get_" * (method == "GET") + function).split("_")
    return first + "".join(map(str.capitalize, words))


def _respond(answer: msgspec.Struct | Reply | Response) -> Response:
    if isinstance(answer, Response):
        return answer
    reply = answer if isinstance(answer, Reply) else Reply(200, answer)
    return Response(msgspec.json.encode(reply.body), reply.status, reply.headers, media_type=JSON)
