"""
Paths of requests: without the mount prefix, for people or programs, and back after signing in; and the
headers of every response.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"

#: A path of the view, maybe with a query: one slash, then what can't be taken for a host, a scheme or a header's end.
_NEXT: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")
#: Ends of addresses that only take posts.
_DEEDS: Final = re.compile(r"(/queues/[^/]+|/bulks/[^/]+)/(?:actions|undo|track|stop)")


def prefix_of(scope: Scope) -> str:
    """The mount prefix as it stands in a link: empty, or with a slash at its beginning and none at its end."""
    return quote(scope.get("root_path", "").rstrip("/"))


def path_in_view(scope: Scope) -> str:
    """
    The path below the prefix; empty for the prefix itself. It must be what Starlette's router takes for it, or a
    path that the guard lets through would not be the one that is answered.
    """
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        return path[len(prefix) :]
    return path


def is_for_machines(scope: Scope) -> bool:
    """True when a program reads the answer: then a refusal is JSON instead of a page."""
    path = path_in_view(scope)
    return path == "/metrics" or path.startswith("/api/")


def sign_in_url(request: Request) -> str:
    """The sign-in page, which returns to the page that was asked for, or from which something was to be done."""
    prefix = prefix_of(request.scope)
    query = request.scope["query_string"].decode("latin-1")
    wanted = quote(path_in_view(request.scope)) + (f"?{query}" if query else "")
    is_dropped = request.method == "POST" and path_in_view(request.scope) != SIGN_OUT
    if request.method == "POST":
        # A question is the answer to a post: its address is no page's, but what is before that is one.
        sent = urlsplit(request.headers.get("referer", ""))
        path = sent.path.removeprefix(prefix)
        is_deed = _DEEDS.fullmatch(path)
        wanted = is_deed[1] if is_deed else path + (f"?{sent.query}" if sent.query else "")
    wanted = checked_next(wanted)
    given = {"next": wanted} if wanted != "/" else {}
    given |= {"dropped": "1"} if is_dropped else {}
    return f"{prefix}{SIGN_IN}" + (f"?{urlencode(given, safe='/', quote_via=quote)}" if given else "")


def checked_next(path: str) -> str:
    """A path of the view to go on to, as it was given, or the overview where that could lead to another site."""
    return path if _NEXT.fullmatch(path) else "/"


SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: with it browsers send `Origin: null` with our own forms as well, and the guard could not tell
    # them from a stranger's.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

#: A file that is asked for by its version never changes; without, the browser has to ask whether it did.
VERSIONED: Final = "public, max-age=31536000, immutable"


class Headers:
    """Outermost middleware, so that refusals and errors get the headers as well."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers["Cache-Control"] = _cache_control(scope, message["status"])
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _cache_control(scope: Scope, status: int) -> str:
    if status not in (200, 304) or not path_in_view(scope).startswith("/static/"):
        return "no-store"
    return VERSIONED if parse_qs(scope["query_string"]).get(b"v") else "no-cache"
