"""A site of FastAPI or Starlette: what begins and ends with it, and who may look at its jobs."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, requires
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route

from lowkiq import Lowkiq, SettingsError
from lowkiq.fastapi import guarded_view, lifespan, view_router

PREFIX = "/ops/lowkiq"


@pytest.fixture
def queue(app):
    worker = app.worker(queue_name="shop")(lambda batch: None)
    worker.perform_async([{"id": "1", "perform_in": 4e9}])
    return worker


def staff(x_user: Annotated[str, Header()] = "") -> str:
    if not x_user:
        raise HTTPException(401, "who are you?")
    return x_user


def admin(user: Annotated[str, Depends(staff)]) -> None:
    if user != "admin":
        raise HTTPException(403, "only admin")


def by_router(app: Lowkiq, **kept):
    site = FastAPI()
    given = {"see": [Depends(staff)], "act": [Depends(admin)]} | kept
    site.include_router(view_router(app, **given), prefix=PREFIX)
    return site


def by_router_of_a_router(app: Lowkiq, **kept):
    from fastapi import APIRouter

    outer = APIRouter(prefix="/ops")
    given = {"see": [Depends(staff)], "act": [Depends(admin)]} | kept
    outer.include_router(view_router(app, **given), prefix="/lowkiq")
    site = FastAPI()
    site.include_router(outer)
    return site


def by_mount(app: Lowkiq, **kept):
    def see(request):
        if not request.headers.get("x-user"):
            raise HTTPException(401, "who are you?")

    async def act(request):
        return request.headers["x-user"] == "admin"

    return Starlette(routes=[Mount(PREFIX, guarded_view(app, **{"see": see, "act": act} | kept))])


@pytest.fixture(params=[by_router, by_router_of_a_router, by_mount])
def host(request, app, serve):
    """host(**of the view) → a client of the site, without a user."""
    clients = []

    def host(**kept):
        clients.append(httpx.Client(base_url=serve(request.param(app, **kept)), timeout=60))
        return clients[-1]

    yield host
    for client in clients:
        client.close()


def delete(client, user):
    """Deletes the job, as a page's script does."""
    headers = {"X-User": user}
    token = client.get(f"{PREFIX}/api/v1/token", headers=headers).json()["token"]
    action = {"action": "delete", "view": "due", "ids": ["1"]}
    path = f"{PREFIX}/api/v1/queues/shop/actions"
    return client.post(path, json=action, headers=headers | {"X-Lowkiq-Token": token})


def test_who_may_not_see_sees_no_page(host, queue):
    client = host()
    for path in ("/", "/nodes", "/queues/shop", "/api/v1/stats", "/static/live.js", "/metrics", "/none"):
        assert client.get(PREFIX + path).status_code == 401, path
        assert client.post(PREFIX + path).status_code == 401, path
    assert client.request("DELETE", f"{PREFIX}/").status_code == 401


def test_who_may_see_sees_all_below_the_prefix(host, queue):
    client = host()
    page = client.get(f"{PREFIX}/", headers={"X-User": "ann"})
    assert page.status_code == 200
    links = set(re.findall(r'(?:href|src)="([^"#?]+)"', page.text))
    assert links
    assert all(link.startswith(f"{PREFIX}/") for link in links), links
    for link in links:
        assert client.get(link, headers={"X-User": "ann"}).status_code == 200, link
    assert client.get(f"{PREFIX}/queues/none", headers={"X-User": "ann"}).status_code == 404
    found = client.get(PREFIX, headers={"X-User": "ann"}, follow_redirects=True)
    assert (found.status_code, found.url.path) == (200, f"{PREFIX}/")


def test_only_who_may_act_changes_anything(host, queue):
    client = host()
    refused = delete(client, "ann")
    assert refused.status_code == 403
    assert queue.queries.fetch(["1"]) != []
    done = delete(client, "admin")
    assert done.status_code == 200, done.text
    assert queue.queries.fetch(["1"]) == []


@pytest.mark.parametrize("how", ["see", "act"])
def test_a_body_that_somebody_has_read_is_there_for_the_view(app, queue, serve, how):
    """As Sentry's integration reads it."""

    async def read(request: Request) -> None:
        await request.body()

    given = {"see": [Depends(staff)], "act": [Depends(admin)]}
    given[how].append(Depends(read))
    with httpx.Client(base_url=serve(by_router(app, **given)), timeout=60) as client:
        assert delete(client, "ann").status_code == 403
        done = delete(client, "admin")
    assert done.status_code == 200, done.text
    assert queue.queries.fetch(["1"]) == []


def test_without_a_rule_for_acting_nobody_does(host, queue):
    client = host(act=None)
    assert delete(client, "admin").status_code == 403
    assert queue.queries.fetch(["1"]) != []


def test_methods_that_http_does_not_know_change_nothing(host, queue):
    client = host()
    for method in ("PUT", "DELETE", "PATCH", "PROPFIND"):
        answer = client.request(method, f"{PREFIX}/api/v1/queues/shop/actions", headers={"X-User": "ann"})
        assert answer.status_code in {403, 405}, method


def test_a_view_that_anybody_could_see_is_refused(app):
    for see in ([], None, staff):
        with pytest.raises(SettingsError, match="see is"):
            view_router(app, see=see)
    with pytest.raises(SettingsError, match="act is"):
        view_router(app, see=[Depends(staff)], act=admin)
    for see in (None, [Depends(staff)]):
        with pytest.raises(SettingsError, match="see is"):
            guarded_view(app, see=see)


def test_the_view_is_not_in_the_site_s_schema(app):
    assert by_router(app).openapi()["paths"] == {}


class ByHeader(AuthenticationBackend):
    async def authenticate(self, conn):
        user = conn.headers.get("x-user")
        return (AuthCredentials(["staff"]), SimpleUser(user)) if user else None


def test_starlettes_requires_is_a_rule_and_may_lead_to_the_sign_in(app, serve):
    @requires("staff", redirect="sign_in")
    async def see(request):
        return None

    site = Starlette(
        routes=[
            Route("/sign-in", lambda request: PlainTextResponse("sign in"), name="sign_in"),
            Mount(PREFIX, guarded_view(app, see=see)),
        ],
        middleware=[Middleware(AuthenticationMiddleware, backend=ByHeader())],
    )
    with httpx.Client(base_url=serve(site)) as client:
        assert client.get(f"{PREFIX}/", follow_redirects=True).text == "sign in"
        assert client.get(f"{PREFIX}/", headers={"X-User": "ann"}).status_code == 200


def test_a_rule_may_answer_itself(app, serve):
    site = Starlette(routes=[Mount(PREFIX, guarded_view(app, see=lambda request: RedirectResponse("/elsewhere")))])
    assert httpx.get(f"{serve(site)}{PREFIX}/").headers["location"] == "/elsewhere"


class Relay:
    """Notes when it runs; like one on a thread."""

    def __init__(self, seen):
        self.seen = seen

    def start(self):
        self.seen.append("relay")

    def stop(self):
        self.seen.append("relay ends")


def test_a_lifespan_holds_relays_the_site_s_own_and_the_connections(make_app):
    seen = []
    app = make_app()
    sync = app.worker(queue_name="sync")(lambda batch: None)

    @asynccontextmanager
    async def own(site):
        seen.append("own")
        yield {"state": 1}
        await sync.aperform_async([{"id": 1}])  # still possible
        seen.append("own ends")

    @asynccontextmanager
    async def task():
        seen.append("task")
        yield
        seen.append("task ends")

    async def main():
        async with lifespan(app, Relay(seen), task(), own=own)(None) as state:
            assert state == {"state": 1}
            close, app.close = app.close, lambda: [seen.append("closed"), close()]

    asyncio.run(main())
    assert seen == ["own", "relay", "task", "task ends", "relay ends", "own ends", "closed"]
    assert sync.queries.fetch([1]) != []


def test_a_site_starts_without_redis():
    app = Lowkiq(redis_url="redis://127.0.0.1:1/0")

    async def main():
        async with lifespan(app)(None) as state:
            assert state is None

    asyncio.run(main())


def test_what_is_no_relay_is_refused(app):
    with pytest.raises(SettingsError, match="is no relay"):
        lifespan(app, lambda site: None)


def test_a_lifespan_serves_fastapi_and_starlette(app, serve):
    for site in (FastAPI(lifespan=lifespan(app)), Starlette(lifespan=lifespan(app))):
        assert httpx.get(f"{serve(site)}/none").status_code == 404
