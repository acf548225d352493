"""
Pages as a whole or in parts, from the shared snapshot.

A page is rendered whole when a person opens it. While it is open, the script fetches the same address each second with
the header X-Lowkiq-Live, and takes over the elements marked data-live. The rule of what they hold:

* "tick": what depends on the snapshot alone: numbers, nodes, shards. It costs Redis nothing.
* "slow", every fifth time, also what must be read: charts, jobs in flight, one job, places of one id, bulk actions.
* Lists of jobs and of kinds of errors are never taken over: they would move under the hand of somebody selecting in
  them. Of jobs the script tells what is new or gone, of kinds of errors it renews the numbers.

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

import redis
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from lowkiq import clock
from lowkiq.admin.words import printable
from lowkiq.web.render.templating import environment, link, query_of
from lowkiq.web.security.access import CALLER
from lowkiq.web.security.guard import READ_ONLY, Form, form_of, who_of
from lowkiq.web.snapshot import PATIENCE, STALE, TICK_PATIENCE, Snapshot, seen
from lowkiq.web.view import View

HEADER: Final = "x-lowkiq-live"
#: Time and age of the snapshot that an answer is made of, by which the script judges whether anything new came.
AT, AGE = "X-Lowkiq-At", "X-Lowkiq-Age"
#: Seconds for the parts of a page, less than the script waits: an answer that says what is wrong must come in time.
PARTS_WITHIN: Final = 1.7
#: Cookie of a reader's choice between light and dark, and its values; without it the system's choice holds.
THEME, THEMES = "lowkiq_theme", frozenset({"light", "dark"})
#: Rendered parts that are kept: some dozen addresses of the last ticks, in some megabytes at most.
KEPT: Final = 32
#: Characters of an address beyond which its parts are not kept: memory is bounded by number and by length.
LONGEST_KEPT: Final = 2_048

Pace = Literal["whole", "tick", "slow"]
#: Value of the header → pace.
PACES: Final[Mapping[str, Pace]] = {"": "whole", "slow": "slow"}


@dataclass(frozen=True)
class Visit:
    """A request for a page, with the state of everything at that moment."""

    request: Request
    snapshot: Snapshot
    pace: Pace

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the address."""
        return query_of(self.request)

    @property
    def reads(self) -> bool:
        """Permission to read from Redis what the snapshot does not have."""
        return self.pace != "tick"

    @property
    def is_whole(self) -> bool:
        """True when a person opened the page."""
        return self.pace == "whole"

    @property
    def form(self) -> Form:
        return form_of(self.request)

    @property
    def who(self) -> str:
        return who_of(self.request)

    def queue(self) -> str:
        """The queue named in the address. Raises HTTPException when there is none of that name."""
        name = str(self.request.path_params["queue"])
        if name not in self.snapshot.queues:
            raise HTTPException(404, f"There is no queue {printable(name, 100)}.")
        return name

    def go(self, path: str, /, **query: Any) -> Response:
        """Has the browser go there once a deed is done."""
        path, mark, fragment = path.partition("#")
        return RedirectResponse(link(self.request, path, **query) + mark + fragment, 303)


#: Makes what the template of a page is given; it may read from Redis, and runs in a thread.
Builder = Callable[[View, Visit], Mapping[str, Any]]


class LivePages:
    """Answers requests for all pages of one view; builders decide what a page says."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._parts = _Shared()

    def question(self, path: str, ask: Callable[[Visit], Response]) -> Route:
        """The route of a question before a deed, which may read from Redis."""

        def answer(visit: Visit) -> Response:
            if self.view.read_only:
                raise HTTPException(403, READ_ONLY)
            return ask(visit)

        return self.deed(path, answer, "GET")

    def deed(self, path: str, act: Callable[[Visit], Response], method: str = "POST") -> Route:
        """The route of what a form asks for. It runs in a thread."""

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(act, Visit(request, await self.view.snapshots.get(), "whole"))

        return Route(path, answer, methods=[method])

    def route(self, path: str, template: str, build: Builder) -> Route:
        async def answer(request: Request) -> Response:
            began, snapshots = clock.monotonic(), self.view.snapshots
            pace = PACES.get(request.headers.get(HEADER, ""), "tick")
            snapshot = await snapshots.get(PATIENCE if pace == "whole" else TICK_PATIENCE)
            visit = Visit(request, snapshot, pace)
            age = snapshots.age
            text = asyncio.ensure_future(self._text(visit, template, build, age))
            text.add_done_callback(seen)
            left = None if visit.is_whole else PARTS_WITHIN - (clock.monotonic() - began)
            # Left alone when it has no time: others may wait for it.
            if not (await asyncio.wait({text}, timeout=left))[0]:
                raise redis.TimeoutError(f"no answer within {PARTS_WITHIN:g} s")
            return HTMLResponse(text.result(), headers={AT: f"{visit.snapshot.at:.3f}", AGE: f"{age:.1f}"})

        return Route(path, answer)

    async def _text(self, visit: Visit, template: str, build: Builder, age: float) -> str:
        """The page, or the parts of it that the script asks for."""

        def make() -> str:
            own = build(self.view, visit)
            context = {"snapshot": visit.snapshot, "visit": visit, "now": visit.snapshot.at, "age": age, **own}
            return render(self.view, visit.request, template, live=not visit.is_whole, **context)

        key = self._key(visit)
        if visit.is_whole or len("".join(key)) > LONGEST_KEPT:
            return await run_in_threadpool(make)
        return await self._parts.get(key, make)

    def _key(self, visit: Visit) -> tuple[str, ...]:
        scope = visit.request.scope
        address = (scope.get("root_path", ""), scope["path"], scope["query_string"].decode("latin-1"))
        return (str(visit.snapshot.number), visit.pace, *address)


class _Shared:
    """Texts that are rendered once, however many requests wait for them; the oldest are forgotten."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], Future[str | None]] = {}

    async def get(self, key: tuple[str, ...], make: Callable[[], str]) -> str:
        # Futures of `concurrent`, as the view may be mounted where each request has an event loop of its own.
        while (waiting := self._made.get(key)) is not None:
            text = await asyncio.wrap_future(waiting)
            if text is not None:
                return text
        return await self._make(key, make)

    async def _make(self, key: tuple[str, ...], make: Callable[[], str]) -> str:
        future = self._made[key] = Future()
        text: str | None = None
        try:
            text = await run_in_threadpool(make)
        finally:
            if text is None:  # it failed, or its request was given up: the next one tries for itself
                self._made.pop(key, None)
            future.set_result(text)
        for oldest in list(self._made)[:-KEPT]:
            self._made.pop(oldest, None)
        return text


def page(view: View, request: Request, template: str, *, status_code: int = 200, **context: Any) -> Response:
    return HTMLResponse(render(view, request, template, **context), status_code)


def render(view: View, request: Request, template: str, *, live: bool = False, **context: Any) -> str:
    """
    The text of a page.

    Args:
        live: only its `<main>`, as the script fetches it. That has no token in it, so that several people may get it.
    """
    frame: dict[str, Any] = {
        "live": live,
        "url": functools.partial(link, request),
        "read_only": view.read_only,
        "namespace": view.app.settings.namespace,
        "old_after": STALE,
    }
    if not live:
        frame["token"] = "" if view.read_only else view.access.write_token(request)
        caller = request.scope.get(CALLER)
        # Somebody who is not in, as on the page for signing in, has nowhere to go.
        frame["is_in"] = caller is not None
        # Of a page that shows nothing live its header does, as far as it is known just now.
        last = view.snapshots.last if caller is not None and view.snapshots.age <= STALE else None
        frame["last_alerts"] = last.alerts if last else None
        frame["signed_in"] = caller is not None and caller.kind == "session"
        theme = request.cookies.get(THEME)
        frame["theme"] = theme if theme in THEMES else ""
    return environment().get_template(template).render(frame | context)
