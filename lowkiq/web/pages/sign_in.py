"""Signing in and out: the form that turns credentials into a session cookie."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.log import get_logger
from lowkiq.web.pages.live import page
from lowkiq.web.render.templating import link, query_of
from lowkiq.web.security.access import CALLER, SESSION_SECONDS, Caller
from lowkiq.web.security.guard import client_of, form_of
from lowkiq.web.security.paths import SIGN_IN, SIGN_OUT, checked_next, prefix_of
from lowkiq.web.view import View

logger = get_logger()

#: The parameter that tells a second visit of the form from the first.
_AGAIN: Final = "again"


def routes(view: View) -> list[BaseRoute]:
    """The form, and the two posts."""

    async def show(request: Request) -> Response:
        query = query_of(request)
        target = checked_next(query.get("next", ""))
        session = request.cookies.get(view.access.cookie_name, "")
        is_opened = request.headers.get("sec-fetch-dest", "document") == "document"  # and not a page's image, say
        if view.access.can_sign_in and "token" in query and view.access.is_made and is_opened:
            # The link of the log. What it leads to has no token in its address, so neither has the browser's history.
            return await _enter(view, request, target, token=query["token"])
        if not view.access.can_sign_in or view.access.caller_by_session(session):
            return RedirectResponse(prefix_of(request.scope) + target, 303)
        response = _form(view, request, target, dropped=query.get("dropped") == "1")
        if request.headers.get("sec-fetch-site") == "cross-site" and _AGAIN not in query:
            # A browser that follows a link from a chat comes without the cookie, as it is a strict one; coming again
            # from this page, it brings it. Once only: this must not go in circles.
            response.headers["Refresh"] = f"0; url={link(request, SIGN_IN, next=target, **{_AGAIN: 1})}"
        return response

    async def sign_in(request: Request) -> Response:
        if not view.access.can_sign_in:
            return RedirectResponse(f"{prefix_of(request.scope)}/", 303)
        form = form_of(request)
        target = checked_next(form.get("next", ""))
        token, user, password = (form.get(name, "") for name in ("access_token", "user", "password"))
        return await _enter(view, request, target, token=token, user=user, password=password)

    async def sign_out(request: Request) -> Response:
        caller: Caller | None = request.scope.get(CALLER)
        if caller is not None and caller.kind == "session":
            await view.access.ended.end(caller.nonce, view.backend.end_session)
        response = RedirectResponse(prefix_of(request.scope) + SIGN_IN, 303)
        _set_cookie(view, request, response, "", 0)
        return response

    return [
        Route(SIGN_IN, show, methods=["GET"]),
        Route(SIGN_IN, sign_in, methods=["POST"]),
        Route(SIGN_OUT, sign_out, methods=["POST"]),
    ]


async def _enter(
    view: View, request: Request, target: str, *, token: str, user: str = "", password: str = ""
) -> Response:
    """The answer to credentials: a session, or the form again."""
    is_right = partial(view.access.signs_in, token=token, user=user, password=password)
    if not await view.guesses.judge(client_of(request), "", is_right, is_made=view.access.is_made):
        return _form(view, request, target, wrong=True)
    logger.info("web_signed_in", client=client_of(request))
    response = RedirectResponse(prefix_of(request.scope) + target, 303)
    _set_cookie(view, request, response, view.access.new_session(), SESSION_SECONDS)
    return response


def _form(view: View, request: Request, target: str, *, wrong: bool = False, dropped: bool = False) -> Response:
    credentials = view.access.credentials
    return page(
        view,
        request,
        "sign_in.html",
        status_code=401 if wrong else 200,
        next=target,
        wrong=wrong,
        dropped=dropped,
        is_made=view.access.is_made,
        by_token=credentials.token is not None,
        by_password=credentials.user is not None,
    )


def _set_cookie(view: View, request: Request, response: Response, value: str, seconds: int) -> None:
    # The browser's own word counts as well: where TLS ends in front of us, only it knows of it.
    is_https = request.scope["scheme"] == "https" or request.headers.get("origin", "").startswith("https://")
    response.set_cookie(
        view.access.cookie_name,
        value,
        max_age=seconds,
        path=prefix_of(request.scope) or "/",
        httponly=True,
        samesite="strict",
        secure=is_https,
    )
