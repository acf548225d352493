"""Headers of all responses, and errors as people, programs and the log get them."""

from __future__ import annotations

import json

import httpx
import pytest

from lowkiq import Lowkiq
from lowkiq.web import create_app
from lowkiq.web.security.paths import SECURITY_HEADERS, VERSIONED
from tests.web.conftest import TOKEN
from tests.web.rooms import with_rooms

BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def make_web(make_web):
    """The view, with routes of the tests' own."""
    return lambda **options: with_rooms(make_web(**options))


@pytest.mark.parametrize("path", ["/echo", "/healthz", "/nothing", "/static/style.css", "/fail", "/api/v1/fail"])
def test_everything_carries_the_security_headers(make_web, browse, path):
    response = browse(make_web()).get(path)
    assert {name: response.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS


def test_refusals_carry_them_too(make_web, browse):
    response = browse(make_web(), "10.0.0.9").get("/echo")
    assert response.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert response.headers["cache-control"] == "no-store"


def test_only_static_files_are_kept_by_browsers(make_web, browse):
    browser = browse(make_web())
    assert browser.get("/echo").headers["cache-control"] == "no-store"
    assert browser.get("/static/style.css?v=1").headers["cache-control"] == VERSIONED
    assert browser.get("/static/style.css").headers["cache-control"] == "no-cache"
    assert browser.get("/static/nothing.css?v=1").headers["cache-control"] == "no-store"


def test_a_failure_of_ours_shows_nothing_of_itself(make_web, browse):
    browser = browse(make_web())
    page, document = browser.get("/fail"), browser.get("/api/v1/fail")
    assert (page.status_code, document.status_code) == (500, 500)
    assert "secret" not in page.text + document.text
    assert "Traceback" not in page.text
    assert json.loads(document.text).keys() == {"error"}


def test_a_response_that_has_begun_just_ends(make_web, serve):
    received = b""
    with httpx.stream("GET", f"{serve(make_web())}/late") as response, pytest.raises(httpx.RemoteProtocolError):
        for chunk in response.iter_bytes():
            received += chunk
    assert received == b"begun"


def test_a_failure_is_logged_without_what_the_request_held(make_web, browse, capsys):
    browse(make_web(token=TOKEN)).get("/fail", **BEARER)
    log = capsys.readouterr().out
    assert "Traceback" in log
    assert TOKEN not in log


def test_what_was_asked_for_is_not_echoed(make_web, browse):
    browser = browse(make_web())
    for path in ("/<script>alert(1)</script>", "/queues/<script>", "/echo?<script>"):
        assert "<script>" not in browser.get(path).text


def test_the_prefix_without_a_slash_leads_to_the_overview(make_web, browse):
    web = make_web()

    async def dispatch(scope, receive, send):
        await web(dict(scope, root_path="/jobs"), receive, send)

    response = browse(dispatch).get("/jobs")
    assert (response.status_code, response.headers["location"]) == (307, "/jobs/")


@pytest.mark.parametrize("path", ["/", "/nodes", "/queues/a", "/bulks"])
def test_a_dead_redis_gives_a_page_that_recovers(browse, path):
    away = create_app(Lowkiq(redis_url="redis://anna:secret@127.0.0.1:1/0"), no_auth=True)
    response = browse(away).get(path)
    assert response.status_code == 503
    assert "redis://anna:***@127.0.0.1:1/0" in response.text
    assert "data-down" in response.text
    assert "live.js" in response.text
    assert "secret" not in response.text
    assert "Traceback" not in response.text


def test_a_redis_that_refuses_is_not_said_to_be_silent(make_web, browse):
    response = browse(make_web()).get("/refuse")
    assert response.status_code == 503
    assert "refuses: MISCONF &lt;b&gt;no disk" in response.text
    assert "does not answer" not in response.text


def test_a_post_to_a_dead_redis_is_not_repeated_by_the_page(browse):
    away = create_app(Lowkiq(redis_url="redis://127.0.0.1:1/0"), token=TOKEN)
    form, known = {"action": "delete", "ids": "1"}, {"authorization": f"Bearer {TOKEN}"}
    response = browse(away).post("/queues/a/actions", form, **known)
    assert response.status_code == 503
    assert "data-down" not in response.text
    assert "Look before you ask again" in response.text


def test_a_dead_redis_is_told_to_programs_in_json(browse):
    away = create_app(Lowkiq(redis_url="redis://127.0.0.1:1/0"), no_auth=True)
    for path in ("/api/v1/stats", "/metrics"):
        response = browse(away).get(path)
        assert response.status_code == 503
        assert "does not answer" in response.json()["error"]
