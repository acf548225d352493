"""Where in the view a request goes: its path without the prefix, and who reads the answer."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.types import Scope

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"

#: A path of the view, maybe with a query: one slash, then what can't be taken for a host, a scheme or a header's end.
_NEXT: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")


def prefix_of(scope: Scope) -> str:
    """What the view is mounted at, as it stands in a link: empty, or it begins with a slash and does not end in one."""
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
    """Whether the answer is read by a program: then a refusal is JSON and no page."""
    path = path_in_view(scope)
    return path == "/metrics" or path.startswith("/api/")


def sign_in_url(request: Request) -> str:
    """Where to sign in, and to return from: to the page that was asked for, if it was one."""
    prefix = prefix_of(request.scope)
    if request.method == "POST":
        return f"{prefix}{SIGN_IN}"
    query = request.scope["query_string"].decode("latin-1")
    wanted = checked_next(quote(path_in_view(request.scope)) + (f"?{query}" if query else ""))
    return f"{prefix}{SIGN_IN}" if wanted == "/" else f"{prefix}{SIGN_IN}?next={quote(wanted, safe='/')}"


def checked_next(path: str) -> str:
    """A path of the view to go on to, as it was given, or the overview where that could lead to another site."""
    return path if _NEXT.fullmatch(path) else "/"
