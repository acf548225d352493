"""Security and caching headers of every response."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowkiq.web.security.paths import path_in_view

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
