"""
LivePages: answers a request for a page, whole or in parts, from the shared snapshot.

A page is rendered whole when a person opens it. While it is open, the script fetches the same address each second with
the header X-Lowkiq-Live, and takes over the elements marked data-live. The rule of what they hold:

* "tick": what depends on the snapshot alone: numbers, nodes, shards. It costs Redis nothing.
* "slow", every fifth time, also what must be read: charts, jobs in flight, one job, bulks.
* Lists of jobs are never fetched: they would move under the hand of who selects in them.

What is fetched holds no token and nothing else of the person, so it is made once for each snapshot and address, and a
hundred open dashboards cost as much as one. A part that is missing from what is fetched stays as it is.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from lowkiq.web.render.templating import environment, link, query_of
from lowkiq.web.security.access import CALLER
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

HEADER: Final = "x-lowkiq-live"
#: What the script fetches is put into instead of the whole layout.
LIVE_LAYOUT, LAYOUT = "live.html", "base.html"
#: Rendered parts that are kept: some dozen addresses of the last ticks, in some megabytes at most.
KEPT: Final = 32
#: Characters of an address beyond which its parts are not kept: memory is bounded by number and by length.
LONGEST_KEPT: Final = 2_048

Pace = Literal["whole", "tick", "slow"]


@dataclass(frozen=True)
class Look:
    """One look at a page: what was asked for, and the state of everything at that moment."""

    request: Request
    snapshot: Snapshot
    pace: Pace

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the address."""
        return query_of(self.request)

    @property
    def reads(self) -> bool:
        """Whether this look may read from Redis what the snapshot has not."""
        return self.pace != "tick"

    @property
    def is_whole(self) -> bool:
        """Whether a person opened the page."""
        return self.pace == "whole"

    def queue(self) -> str:
        """The queue of the address, if there is one of that name."""
        name = str(self.request.path_params["queue"])
        if name not in self.snapshot.queues:
            raise HTTPException(404, f"There is no queue {name[:100]}.")
        return name


#: Makes what the template of a page is given; it may read from Redis, and runs in a thread.
Builder = Callable[[View, Look], Mapping[str, Any]]


class LivePages:
    """Answers for all pages of one view. What they say is the builders'."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._parts = _Shared()

    def route(self, path: str, template: str, build: Builder) -> Route:
        """The route of a page."""

        async def answer(request: Request) -> Response:
            return await self._answer(request, template, build)

        return Route(path, answer)

    async def _answer(self, request: Request, template: str, build: Builder) -> Response:
        """The page, or the parts of it that the script asks for."""
        look = Look(request, await self.view.snapshots.get(), _pace(request))
        if look.is_whole:
            return await run_in_threadpool(self._whole, look, template, build)
        return HTMLResponse(await self._shared(look, template, build))

    def _whole(self, look: Look, template: str, build: Builder) -> Response:
        return page(self.view, look.request, template, now=look.snapshot.at, **self._built(look, build))

    async def _shared(self, look: Look, template: str, build: Builder) -> str:
        async def make() -> str:
            return await run_in_threadpool(self._part, look, template, build)

        key = self._key(look)
        if len("".join(key)) > LONGEST_KEPT:
            return await make()
        return await self._parts.get(key, make)

    def _part(self, look: Look, template: str, build: Builder) -> str:
        return render(self.view, look.request, template, live=True, now=look.snapshot.at, **self._built(look, build))

    def _built(self, look: Look, build: Builder) -> dict[str, Any]:
        return {"snapshot": look.snapshot, "look": look} | dict(build(self.view, look))

    def _key(self, look: Look) -> tuple[str, ...]:
        scope = look.request.scope
        address = (scope.get("root_path", ""), scope["path"], scope["query_string"].decode("latin-1"))
        return (str(look.snapshot.number), look.pace, str(self.view.read_only), *address)


class _Shared:
    """Texts that are made once, however many wait for them; the oldest are forgotten."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], Future[str | None]] = {}

    async def get(self, key: tuple[str, ...], make: Callable[[], Any]) -> str:
        # Futures of `concurrent`, as the view may be mounted where each request has an event loop of its own.
        while (waiting := self._made.get(key)) is not None:
            text = await asyncio.wrap_future(waiting)
            if text is not None:
                return text
        return await self._make(key, make)

    async def _make(self, key: tuple[str, ...], make: Callable[[], Any]) -> str:
        future = self._made[key] = Future()
        text: str | None = None
        try:
            text = str(await make())
        finally:
            if text is None:  # it failed, or its request was given up: the next one tries for itself
                self._made.pop(key, None)
            future.set_result(text)
        self._forget_oldest()
        return text

    def _forget_oldest(self) -> None:
        for key in list(self._made)[:-KEPT]:
            self._made.pop(key, None)


def page(view: View, request: Request, template: str, *, status_code: int = 200, **context: Any) -> Response:
    """A whole page."""
    return HTMLResponse(render(view, request, template, **context), status_code)


def render(view: View, request: Request, template: str, *, live: bool = False, **context: Any) -> str:
    """
    The text of a page.

    Args:
        live: only its `<main>`, as the script fetches it. That has no token in it, so that several people may get it.
    """
    frame: dict[str, Any] = {
        "layout": LIVE_LAYOUT if live else LAYOUT,
        "url": functools.partial(link, request),
        "read_only": view.read_only,
        "namespace": view.app.settings.namespace,
    }
    if not live:
        frame["token"] = "" if view.read_only else view.access.write_token(request)
        caller = request.scope.get(CALLER)
        # Who is not in, as on the page for signing in, has nothing to go to and nothing to hear.
        frame["is_in"] = caller is not None
        frame["signed_in"] = caller is not None and caller.kind == "session"
    return environment().get_template(template).render(frame | context)


def _pace(request: Request) -> Pace:
    match request.headers.get(HEADER, ""):
        case "":
            return "whole"
        case "slow":
            return "slow"
        case _:
            return "tick"
