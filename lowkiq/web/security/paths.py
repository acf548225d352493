"""Paths of requests: without the mount prefix, for people or programs, and back after signing in."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.types import Scope

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
