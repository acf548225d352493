"""
The guard: lets a request through or refuses it, before any page or operation sees it. Access authenticates the caller;
writes must come from a page of our own, with that page's token, and be of a bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowkiq.admin.words import printable
from lowkiq.environment import WEB_HOSTS, is_loopback_address
from lowkiq.log import get_logger
from lowkiq.web.security.access import CALLER, Access, Caller, is_loopback_host
from lowkiq.web.security.guesses import Guesses
from lowkiq.web.security.paths import SIGN_IN, SIGN_OUT, is_for_machines, path_in_view, prefix_of, sign_in_url
from lowkiq.web.security.proxies import Proxies

logger = get_logger()

#: Bytes of a form: the ids of a page and some more.
FORM_LIMIT: Final = 64 << 10
#: Bytes of a JSON document.
JSON_LIMIT: Final = 1 << 20
#: Digits of a length that are read: Python refuses to read thousands.
LONGEST_NUMBER: Final = 20
#: Seconds for a body to arrive.
BODY_TIMEOUT: Final = 30.0

_FORM: Final = "lowkiq.form"
_READS, _WRITE = ("GET", "HEAD"), "POST"
#: Probes have no credentials, and any name for us.
_PROBES: Final = frozenset({"/healthz", "/readyz"})
#: Headers of a request that has come through a proxy.
_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")

#: Headers in which proxies that let people in tell who somebody is; the first that is there counts.
_USER_HEADERS: Final = ("X-Forwarded-User", "X-Auth-Request-User", "Remote-User", "X-Forwarded-Email")

#: Kind of a caller without a name → what is kept for one.
CREDENTIALS: Final = {"bearer": "token", "session": "session", "anyone": "anyone"}

#: The refusal of a change, and of a question before one.
READ_ONLY: Final = "this view is read-only"
_RELOAD = "reload the page and try again"
_LOCAL_ONLY: Final = (
    "Nobody has set credentials for this view, so it answers only this machine, at a loopback address, by HTTP/1.1 and "
    "not through a proxy. Set LOWKIQ_WEB_TOKEN, or LOWKIQ_WEB_USER and LOWKIQ_WEB_PASSWORD; where something else "
    "protects it, say --no-auth (create_app: no_auth=True)."
)


#: The fields of a form: `.get(name)` gives the last, `.getlist(name)` all.
Form = ImmutableMultiDict[str, str]


def form_of(request: Request) -> Form:
    """The fields of a posted form, which the guard has read. Bytes that are no UTF-8 are kept as surrogates."""
    form: Form = request.scope.get(_FORM) or Form()
    return form


def client_of(request: Request) -> str | None:
    """The address that a request came from, for the log: a proxy's, where there is one."""
    return request.client.host if request.client else None


def who_of(request: Request) -> str:
    """Who has sent a request, for what is kept of it: by which credentials, and from where."""
    caller: Caller | None = request.scope.get(CALLER)
    name = (caller.name or CREDENTIALS.get(caller.kind, "")) if caller else ""
    return f"{name or 'somebody'} at {client_of(request) or 'an unknown address'}"


class Guard:
    """
    Middleware around pages and API. A refusal is an HTTPException, which becomes a page or JSON further out.

    Args:
        read_ended: gives the sessions that any process has ended; it asks Redis, and blocks.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        guesses: Guesses,
        read_ended: Callable[[], Iterable[str]],
        *,
        read_only: bool,
        proxies: Proxies,
    ) -> None:
        self.app = app
        self._access = access
        self._guesses = guesses
        self._read_ended = read_ended
        self._read_only = read_only
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        if request.method not in {*_READS, _WRITE}:
            raise HTTPException(405, "only GET, HEAD and POST are answered here", {"Allow": "GET, HEAD, POST"})
        path = path_in_view(scope)
        if not path:  # the prefix without a slash, from which relative links would lead astray
            await RedirectResponse(f"{prefix_of(scope)}/", 307)(scope, receive, send)
            return
        # Beside probes, everybody may have the style sheet, which the page for signing in needs, and that page.
        is_open = path in _PROBES or path.startswith("/static/")
        if not is_open:
            _check_way(request, self._access)
        if not is_open and path != SIGN_IN:
            caller = await self._caller(request)
            if caller is None:
                await self._ask_for_credentials(request)(scope, receive, send)
                return
            scope[CALLER] = caller
        if request.method == _WRITE:
            receive = await self._check_write(request, path)
        await self.app(scope, receive, send)

    async def _caller(self, request: Request) -> Caller | None:
        access = self._access
        if access.no_auth:
            # An application around the view may have said who it is.
            return request.scope.get(CALLER) or Caller("anyone", name=_name_by_proxy(request, self._proxies))
        cookie = request.cookies.get(access.cookie_name, "")
        if access.caller_by_session(cookie):
            await access.ended.refresh(self._read_ended)
            if caller := access.caller_by_session(cookie):
                return caller
        authorization = request.headers.get("authorization", "")
        if not authorization:
            return None
        await self._guesses.judge(
            client_of(request),
            authorization,
            lambda: access.caller_by_header(authorization) is not None,
            is_made=access.is_made,
        )
        return access.caller_by_header(authorization)

    def _ask_for_credentials(self, request: Request) -> RedirectResponse:
        if is_for_machines(request.scope):
            # Not Basic: browsers would show a dialog of their own over the page whose script has asked.
            raise HTTPException(
                401,
                "credentials are missing or wrong: send `Authorization: Bearer <LOWKIQ_WEB_TOKEN>`, "
                "or Basic with user and password",
                {"WWW-Authenticate": "Bearer"},
            )
        return RedirectResponse(sign_in_url(request), 303)

    async def _check_write(self, request: Request, path: str) -> Receive:
        """Checks a write, and returns a `receive` that replays its body."""
        changes_jobs = path not in {SIGN_IN, SIGN_OUT}  # these change nothing but the browser's own cookie
        if self._read_only and changes_jobs:
            raise HTTPException(403, READ_ONLY)
        _check_origin(request)
        body = await _read_body(request)
        if _content_type(request) == "application/x-www-form-urlencoded":
            fields = parse_qsl(body.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
            request.scope[_FORM] = Form(fields)
        caller: Caller | None = request.scope.get(CALLER)
        if changes_jobs and caller is not None:
            given = request.headers.get("x-lowkiq-token") or form_of(request).get("token", "")
            if caller.needs_token and not self._access.is_write_token(caller, given):
                raise HTTPException(403, f"the page that sent this is out of date (its token is not valid): {_RELOAD}")
            logger.info("web_write", path=path, by=caller.kind, client=client_of(request))
        return replay(body, request.receive)


def _name_by_proxy(request: Request, proxies: Proxies) -> str:
    """
    The name that a proxy tells, if that is one that is believed; where nobody has said which are, with how it is told:
    whoever sends the header may say anything then.
    """
    if proxies and not proxies.has(client_of(request)):
        return ""
    for header in _USER_HEADERS:
        if values := [value.strip() for value in request.headers.getlist(header) if value.strip()]:
            name = printable(values[-1].encode("latin-1").decode(errors="backslashreplace"), 100)
            return name if proxies else f"{name} by {header}"
    return ""


def _check_way(request: Request, access: Access) -> None:
    """Refuses who comes by a way that is not for everybody."""
    hosts = request.headers.getlist("host")
    if access.is_made and not _is_local(request, hosts):
        raise HTTPException(403, _LOCAL_ONLY)
    if not access.is_known_host(hosts[0] if len(hosts) == 1 else ""):
        raise HTTPException(
            403,
            "This view asks for no credentials, so it answers only to names that it knows: an address, localhost, or "
            f"what {WEB_HOSTS} lists, such as {WEB_HOSTS}=jobs.example.com",
        )


def _is_local(request: Request, hosts: list[str]) -> bool:
    """
    True for a browser or program of this machine: by its address, by the name it used (see is_loopback_host), and not
    by way of a proxy, which would make everybody's requests look local. By default proxies speak HTTP/1.0, which
    nobody else does.
    """
    return (
        request.client is not None
        and is_loopback_address(request.client.host)
        and request.scope.get("http_version") != "1.0"
        and len(hosts) == 1
        and is_loopback_host(hosts[0])
        and not any(name in request.headers for name in _FORWARDED)
    )


def _check_origin(request: Request) -> None:
    """Refuses what a page of another site has sent. Only browsers send these headers."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        raise HTTPException(403, f"a page of another site has sent this: {_RELOAD} here")
    host = request.headers.get("host", "")
    # Where TLS ends in front of us, the browser says https and we see http.
    own = {f"{scheme}://{host}".lower() for scheme in (request.scope["scheme"], "https")}
    if origin is not None and origin.lower() not in own:
        raise HTTPException(
            403, f"a page of another site has sent this: {_RELOAD} here. A proxy in front must pass the Host header on"
        )


async def _read_body(request: Request) -> bytes:
    limit = JSON_LIMIT if _content_type(request) == "application/json" else FORM_LIMIT
    too_large = HTTPException(413, f"a request may have {limit:,} bytes, not more")
    announced = request.headers.get("content-length") or "0"  # some servers of WSGI give an empty one
    if not announced.isdecimal() or len(announced) > LONGEST_NUMBER or int(announced) > limit:
        raise too_large
    body = bytearray()
    try:
        with anyio.fail_after(BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {BODY_TIMEOUT:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request ended early") from None
    return bytes(body)


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def replay(body: bytes, receive: Receive) -> Receive:
    """Receives the body that was read, then whatever comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
