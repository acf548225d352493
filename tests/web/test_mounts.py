"""Under a prefix in FastAPI, Starlette, Django and Flask: every link stays below it, and everything works there."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
import pytest
from a2wsgi import ASGIMiddleware
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server

from lowkiq import Lowkiq
from lowkiq.web import create_app
from tests.web.conftest import TOKEN

PREFIX = "/admin/jobs"
Serve = Callable[[Any], str]


@pytest.fixture
def queue(app):
    """A queue with a job, so that pages have something to link to."""
    worker = app.worker(queue_name="shop")(lambda _: None)
    worker.perform_async([{"id": "<b>1</b>", "payload": {"a": 1}, "perform_in": 4e9}])
    return worker


def in_starlette(web, serve):
    return serve(Starlette(routes=[Mount(PREFIX, web)]))


def in_starlette_mounts_within_mounts(web, serve):
    return serve(Starlette(routes=[Mount("/admin", Starlette(routes=[Mount("/jobs", web)]))]))


def in_fastapi(web, serve):
    api = FastAPI()
    api.mount(PREFIX, web)
    return serve(api)


def beside_django_in_starlette(web, serve):
    # Django would be given the prefix without a slash, and knows no such page.
    to_overview = Route(PREFIX, lambda _: RedirectResponse(f"{PREFIX}/"))
    return serve(Starlette(routes=[to_overview, Mount(PREFIX, web), Mount("/", django())]))


def beside_django_in_a_dispatch_of_its_asgi_py(web, serve):
    site = django()

    async def application(scope, receive, send):
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PREFIX}/"):
            await web(dict(scope, root_path=PREFIX), receive, send)
        else:
            await site(scope, receive, send)

    return serve(application)


HOSTS = [
    in_starlette,
    in_starlette_mounts_within_mounts,
    in_fastapi,
    beside_django_in_starlette,
    beside_django_in_a_dispatch_of_its_asgi_py,
]


def django():
    """The least of a Django site."""
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import HttpResponse
    from django.urls import path

    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="tests",
            ROOT_URLCONF=type("urls", (), {"urlpatterns": [path("hello", lambda request: HttpResponse("Django"))]}),
        )
    return get_asgi_application()


@pytest.fixture
def in_flask():
    """Serves the view beside Flask, through the adapter, on werkzeug's server."""
    stop: list[Callable[[], None]] = []

    def host(web):
        site = Flask(__name__)
        site.add_url_rule("/hello", view_func=lambda: "Flask")
        site.wsgi_app = DispatcherMiddleware(site.wsgi_app, {PREFIX: ASGIMiddleware(web)})
        server = make_server("127.0.0.1", 0, site, threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        stop.extend((server.shutdown, lambda: thread.join(60), server.server_close))
        return f"http://127.0.0.1:{server.server_port}"

    yield host
    for step in stop:
        step()


@pytest.fixture(params=[*HOSTS, None], ids=lambda host: host.__name__ if host else "in_flask_through_an_adapter")
def mount(request, serve, in_flask):
    """mount(**options of create_app) → a client of the site, with the view below PREFIX."""
    app: Lowkiq = request.getfixturevalue("app")
    clients: list[httpx.Client] = []

    def mounted(**options):
        web = create_app(app, **options)
        url = request.param(web, serve) if request.param else in_flask(web)
        clients.append(httpx.Client(base_url=url, timeout=60))
        return clients[-1]

    request.addfinalizer(lambda: [client.close() for client in clients])
    return mounted


def links_of(page):
    """Every address that a page refers to."""
    return [unescape(link) for link in re.findall(r'(?:href|src|action)="([^"]*)"', page)]


def value_of(page, name):
    """The value of a field of a page's forms."""
    match = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert match
    return unescape(match[1])


@pytest.mark.parametrize("path", ["/", "/nodes", "/bulks", "/queues/shop", "/queues/shop/job?id=%3Cb%3E1%3C%2Fb%3E"])
def test_every_link_of_every_page_stays_below_the_prefix(mount, queue, path):
    client = mount(no_auth=True)
    response = client.get(PREFIX + path)
    assert response.status_code == 200
    links = links_of(response.text)
    assert any(link.startswith(f"{PREFIX}/static/") for link in links)
    outside = [link for link in links if not link.startswith((f"{PREFIX}/", "#", "?")) and link != ""]
    assert outside == []


def test_also_those_of_error_pages_and_of_the_form(mount):
    client = mount(token=TOKEN)
    for path in ("/sign-in", "/static/nothing.css"):
        links = links_of(client.get(PREFIX + path).text)
        assert links
        assert all(link.startswith((f"{PREFIX}/", "#")) for link in links)


def test_what_the_overview_links_to_is_there(mount, queue):
    client = mount(no_auth=True)
    for link in {link for link in links_of(client.get(f"{PREFIX}/").text) if link.startswith(PREFIX)}:
        assert client.get(link).status_code == 200, link


def test_one_signs_in_posts_and_signs_out_there(mount, queue):
    client = mount(token=TOKEN)
    refused = client.get(f"{PREFIX}/nodes")
    assert refused.headers["location"] == f"{PREFIX}/sign-in?next=/nodes"
    answer = client.post(f"{PREFIX}/sign-in", data={"access_token": TOKEN, "next": "/nodes"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PREFIX}/nodes")
    assert f"Path={PREFIX};" in answer.headers["set-cookie"]
    assert client.get(f"{PREFIX}/nodes").status_code == 200

    action = {"action": "delete", "view": "due", "ids": ["<b>1</b>"]}
    assert client.post(f"{PREFIX}/api/v1/queues/shop/actions", json=action).status_code == 403
    token = client.get(f"{PREFIX}/api/v1/token").json()["token"]
    done = client.post(f"{PREFIX}/api/v1/queues/shop/actions", json=action, headers={"X-Lowkiq-Token": token})
    assert done.status_code == 200, done.text
    assert queue.app.metrics()["shop"].length == 0

    assert client.post(f"{PREFIX}/sign-out").headers["location"] == f"{PREFIX}/sign-in"
    assert client.get(f"{PREFIX}/api/v1/token").status_code == 401


def test_a_form_of_a_page_acts_and_returns_below_the_prefix(mount, queue):
    client = mount(no_auth=True)
    page = client.get(f"{PREFIX}/queues/shop?view=due").text
    fields = {"token": value_of(page, "token"), "view": "due", "action": "delete", "confirmed": "1"}
    posted = f"{PREFIX}/queues/shop/actions"
    refused = client.post(posted, data=fields | {"ids": value_of(page, "ids"), "token": "0" * 64})
    assert refused.status_code == 403
    answer = client.post(posted, data=fields | {"ids": value_of(page, "ids")})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{PREFIX}/queues/shop")
    assert queue.queries.fetch(["<b>1</b>"]) == []


def test_the_link_of_the_log_signs_in_there_and_only_loopback_is_answered(mount, capsys):
    client = mount()
    link = re.search(r"/sign-in\?token=\w+", capsys.readouterr().out)
    assert link is not None
    assert client.get(f"{PREFIX}/nodes").status_code == 303
    assert client.get(f"{PREFIX}{link[0]}").headers["location"] == f"{PREFIX}/"
    assert client.get(f"{PREFIX}/nodes").status_code == 200
    assert client.get(f"{PREFIX}/nodes", headers={"Host": "evil.example"}).status_code == 403
    assert client.get(f"{PREFIX}/nodes", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403


def test_failures_are_ours_there(mount, app):
    """Not the host's: ours have the view's headers, and say what to do."""
    client = mount(no_auth=True)
    for path, status in (("/nothing", 404), ("/queues/none", 404), ("/api/v1/queues/none", 404)):
        response = client.get(PREFIX + path)
        assert response.status_code == status
        assert response.headers["x-frame-options"] == "DENY"


def test_the_prefix_without_a_slash_leads_to_the_overview(mount):
    client = mount(no_auth=True)
    answer = client.get(PREFIX, follow_redirects=True)
    assert answer.status_code == 200
    assert answer.url.path == f"{PREFIX}/"


def test_a_body_that_is_too_large_is_refused_there(mount):
    response = mount(token=TOKEN).post(
        f"{PREFIX}/api/v1/echo", content=b"x" * 70_000, headers={"Authorization": f"Bearer {TOKEN}"}
    )
    assert response.status_code == 413


def test_the_host_keeps_its_own_pages(serve, app, in_flask):
    web = create_app(app, no_auth=True)
    site = Starlette(routes=[Mount(PREFIX, web), Route("/hello", lambda _: PlainTextResponse("Starlette"))])
    assert httpx.get(f"{serve(site)}/hello").text == "Starlette"
    assert httpx.get(f"{beside_django_in_starlette(web, serve)}/hello").text == "Django"
    assert httpx.get(f"{in_flask(web)}/hello").text == "Flask"
