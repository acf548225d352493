"""
The web view as a view of Django's, behind the admin's login. `lowkiq.view` lets a member of staff look, `lowkiq.change`
act as well.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import salted_hmac
from django.views.decorators.csrf import csrf_exempt

from lowkiq.django.application import get_app
from lowkiq.environment import Credentials
from lowkiq.web.application import make_web
from lowkiq.web.security.access import CALLER, Access, Caller
from lowkiq.web.security.guard import replay

#: Permissions to look, and to act.
VIEW: Final = "lowkiq.view"
CHANGE: Final = "lowkiq.change"
#: What is a stream without an end, and no page: a worker of WSGI would be gone for as long as somebody listens.
_EVENTS: Final = "api/v1/events"


# Not Django's token but the view's own: every write must come from one of its pages, with a token that is bound to the
# session (lowkiq.web.security.guard). Django's own middleware would not find it in the forms.
@csrf_exempt
@staff_member_required
def view(request: HttpRequest, path: str = "") -> HttpResponse:
    """Answers a request below the prefix that urls.py gives it."""
    user: Any = request.user
    may_change = user.has_perm(CHANGE)
    if not (may_change or user.has_perm(VIEW)):
        raise PermissionDenied
    if path == _EVENTS:
        return HttpResponse("no events by this way: `lowkiq events`, or lowkiq.web beside Django\n", status=501)
    request.get_host()  # raises for a name that is not in ALLOWED_HOSTS
    try:
        body = request.body
    except ValueError:  # Django reads a length of any number of digits, and Python does not
        return HttpResponse("this is no length of a body\n", status=413)
    scope = _scope(request, path) | {CALLER: _caller(user)}
    return async_to_sync(_answer)(_web(is_read_only=not may_change), scope, body)


@functools.cache
def _web(*, is_read_only: bool) -> Any:
    """The view; Django decides who may see it."""
    access = Access(Credentials(), no_auth=True, shared=f"lowkiq.django {settings.SECRET_KEY}")
    return make_web(get_app(), access, read_only=is_read_only, payloads=True)


def _caller(user: Any) -> Caller:
    """The user, with what binds write tokens to the user's password and to this project."""
    nonce = salted_hmac(
        "lowkiq.django.view", f"{user.pk} {user.get_session_auth_hash()}", algorithm="sha256"
    ).hexdigest()
    return Caller("django", nonce, name=user.get_username())


def _scope(request: HttpRequest, path: str) -> dict[str, Any]:
    """The request as ASGI has it. Its prefix is what its path has before ours."""
    headers = [(_bytes(name.lower()), _bytes(value)) for name, value in request.headers.items()]
    query = request.scope["query_string"] if isinstance(request, ASGIRequest) else request.META.get("QUERY_STRING", "")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},  # nobody watches for who goes away: _answer can't tell
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": request.path.removesuffix(path).rstrip("/"),
        "query_string": query if isinstance(query, bytes) else _bytes(query),
        "headers": headers,
        "client": (request.META.get("REMOTE_ADDR") or "", 0),
        "server": None,
    }


def _bytes(text: str) -> bytes:
    """The bytes that a server has given as characters; what a middleware has put there may be any text."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


async def _answer(web: Any, scope: dict[str, Any], body: bytes) -> HttpResponse:
    """What the ASGI application answers, as a whole."""
    response = HttpResponse()
    chunks: list[bytes] = []

    async def nothing_more() -> Any:
        return await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            response.status_code = message["status"]
            del response["Content-Type"]
            for name, value in message["headers"]:
                if name != b"content-length":  # Django's middlewares may change the body, and count it then
                    response[name.decode("latin-1")] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            chunks.append(message.get("body", b""))

    await web(scope, replay(body, nothing_more), send)
    response.content = b"".join(chunks)
    return response
