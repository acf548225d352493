"""Signing in and out."""

from __future__ import annotations

import html
import re

import pytest

from lowkiq.admin import sessions
from lowkiq.queue import keys
from lowkiq.web.security import ended_sessions
from lowkiq.web.security.access import SESSION_SECONDS
from lowkiq.web.security.paths import checked_next
from tests.junk import as_kind
from tests.web.conftest import TOKEN
from tests.web.reading import read


def cookie_of(response):
    """The attributes of the cookie that a response sets, by their names in small letters."""
    parts = [part.strip().partition("=") for part in response.headers["set-cookie"].split(";")]
    return {"value": parts[0][2]} | {name.lower(): value for name, _, value in parts[1:]}


def test_a_token_opens_a_session_and_leads_back(make_web, browse):
    browser = browse(make_web(token=TOKEN), "10.0.0.9", "http://jobs.example")
    form = browser.get("/sign-in?next=/nodes%3Fa%3D1")
    assert form.status_code == 200
    assert 'name="next" value="/nodes?a=1"' in form.text
    answer = browser.post("/sign-in", {"access_token": TOKEN, "next": "/nodes?a=1"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/nodes?a=1")
    assert browser.get("/api/v1/token").status_code == 200


def test_so_do_a_user_and_a_password(make_web, browse):
    browser = browse(make_web(user="anna", password="größer: als 8"))
    assert 'name="user"' in browser.get("/sign-in").text
    assert 'name="access_token"' not in browser.get("/sign-in").text
    assert browser.post("/sign-in", {"user": "anna", "password": "größer: als 8"}).headers["location"] == "/"
    assert browser.get("/api/v1/token").status_code == 200


@pytest.mark.parametrize(
    "fields", [{}, {"access_token": ""}, {"access_token": "wrong"}, {"token": TOKEN}, {"user": "", "password": TOKEN}]
)
def test_anything_else_does_not(make_web, browse, fields):
    browser = browse(make_web(token=TOKEN))
    answer = browser.post("/sign-in", fields)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert browser.get("/api/v1/token").status_code == 401


def test_what_was_typed_is_not_shown_again(make_web, browse):
    answer = browse(make_web(token=TOKEN)).post("/sign-in", {"access_token": "a-wrong-guess", "user": "a-wrong-name"})
    assert "a-wrong" not in answer.text


def test_the_cookie_is_for_this_view_alone_and_out_of_reach_of_scripts(make_web, browse):
    cookie = cookie_of(browse(make_web(token=TOKEN)).post("/sign-in", {"access_token": TOKEN}))
    assert "httponly" in cookie
    assert cookie["samesite"] == "strict"
    assert cookie["path"] == "/"
    assert cookie["max-age"] == str(SESSION_SECONDS)
    assert "domain" not in cookie
    assert "secure" not in cookie


@pytest.mark.parametrize(
    ("url", "headers"), [("https://jobs.example", {}), ("http://jobs.example", {"origin": "https://jobs.example"})]
)
def test_over_https_the_cookie_never_goes_without_it(make_web, browse, url, headers):
    """Also where TLS ends in front of us: the browser's origin tells."""
    answer = browse(make_web(token=TOKEN), "10.0.0.9", url).post("/sign-in", {"access_token": TOKEN}, **headers)
    assert "secure" in cookie_of(answer)


def test_signing_out_ends_it(make_web, browse):
    browser = browse(make_web(token=TOKEN))
    browser.post("/sign-in", {"access_token": TOKEN})
    answer = browser.post("/sign-out")
    assert answer.headers["location"] == "/sign-in"
    assert cookie_of(answer)["max-age"] == "0"
    assert browser.get("/api/v1/token").status_code == 401


@pytest.mark.parametrize("is_away", [False, True])
def test_a_session_that_was_ended_is_over_wherever_its_cookie_has_got_to(make_web, browse, app, monkeypatch, is_away):
    """In this process at once, also while Redis is away; in the others within a second of their next look."""
    monkeypatch.setattr(ended_sessions, "NEW_ENOUGH", 0.0)
    here, there = make_web(token=TOKEN), make_web(token=TOKEN)
    browser = browse(here)
    browser.post("/sign-in", {"access_token": TOKEN})
    thief, far_thief, other = browse(here), browse(there), browse(here)
    for copy in (thief, far_thief):
        copy.cookies.update(browser.cookies)
        assert copy.get("/api/v1/token").status_code == 200
    other.post("/sign-in", {"access_token": TOKEN})
    if is_away:
        as_kind(app.redis(), keys.ended_sessions(app.settings.namespace), "string")
    browser.post("/sign-out")
    assert thief.get("/api/v1/token").status_code == 401
    assert far_thief.get("/api/v1/token").status_code == (200 if is_away else 401)
    assert other.get("/api/v1/token").status_code == 200


def test_ended_sessions_are_bounded_and_forgotten_with_their_cookies(app):
    ns = app.settings.namespace
    for number in range(sessions.MOST + 10):
        sessions.end_session(app.caller, ns, f"{number}", 600 + number)
    assert len(sessions.read_ended_sessions(app.caller, ns)) == sessions.MOST
    assert 0 < app.redis().ttl(keys.ended_sessions(ns)) <= 600 + sessions.MOST + 10


def test_another_site_can_neither_sign_in_nor_out(make_web, browse):
    browser = browse(make_web(token=TOKEN))
    assert browser.post("/sign-in", {"access_token": TOKEN}, origin="http://evil.example").status_code == 403
    browser.post("/sign-in", {"access_token": TOKEN})
    assert browser.post("/sign-out", sec_fetch_site="cross-site").status_code == 403
    assert browser.get("/api/v1/token").status_code == 200


def test_where_nobody_signs_in_the_form_leads_to_the_overview(make_web, browse):
    browser = browse(make_web())
    assert browser.get("/sign-in").headers["location"] == "/"
    assert browser.post("/sign-in", {"access_token": "None"}).headers["location"] == "/"


def test_who_is_signed_in_is_led_on(make_web, browse):
    browser = browse(make_web(token=TOKEN))
    browser.post("/sign-in", {"access_token": TOKEN})
    assert browser.get("/sign-in?next=/nodes").headers["location"] == "/nodes"


def test_who_comes_from_another_site_without_the_strict_cookie_gets_one_more_chance_to_bring_it(make_web, browse):
    browser = browse(make_web(token=TOKEN))
    form = browser.get("/sign-in?next=/nodes%3Fa=1", sec_fetch_site="cross-site")
    again = form.headers["refresh"].removeprefix("0; url=")
    assert again == "/sign-in?next=%2Fnodes%3Fa%3D1&again=1"
    assert "refresh" not in browser.get(again, sec_fetch_site="cross-site").headers
    assert "refresh" not in browser.get("/sign-in?next=/nodes", sec_fetch_site="same-origin").headers


@pytest.mark.parametrize("path", ["/", "/nodes", "/queues/a%2Fb?view=due&pattern=*&x=", "/a//b"])
def test_next_may_be_a_path_of_the_view(path):
    assert checked_next(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "nodes", "//evil.example", "/\\evil.example", "\\\\evil.example", "http://evil.example", "javascript:alert(1)",
     "/a\r\nSet-Cookie: x=1", "/a\tb", "/\t/evil.example", "/ü", "/a b", "/a\\b", "/" + "a" * 3000, "/a\n"],
)  # fmt: skip
def test_next_may_not_lead_elsewhere(path):
    assert checked_next(path) == "/"


def test_a_hostile_next_is_neither_shown_nor_followed(make_web, browse):
    browser = browse(make_web(token=TOKEN))
    assert "evil" not in browser.get("/sign-in?next=//evil.example").text
    shown = browser.get("/sign-in?next=/%22%3E%3Cscript%3E").text
    assert "<script>" not in re.sub(r"<script src=\S+ defer>", "", shown)
    assert html.escape('/"><script>') in shown.replace("&#34;", "&quot;")
    assert browser.post("/sign-in", {"access_token": TOKEN, "next": "//evil.example"}).headers["location"] == "/"


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://localhost/queues/q?view=morgue&pattern=a*", "/queues/q?view=morgue&pattern=a*"),
        ("http://localhost/queues/q/actions", "/queues/q"),  # a question: nobody can get it
        ("http://localhost/nodes/n/actions?action=quiet", "/nodes/n/actions?action=quiet"),
        ("http://localhost//evil.example/", "/"),
        ("", "/"),
    ],
)
def test_what_is_posted_after_a_sign_out_is_dropped_and_says_so(make_web, browse, referer, back):
    browser = browse(make_web(token=TOKEN))
    answer = browser.post("/queues/q/actions", {"action": "delete"}, referer=referer, sec_fetch_site="same-origin")
    assert answer.status_code == 303
    form = read(browser, answer.headers["location"])
    assert "You were signed out, so nothing was done." in form.text
    assert [field["value"] for field in form.all("input", name="next")] == [back]
    assert "nothing was done" not in browser.get("/sign-in").text
    assert browser.post("/sign-out").headers["location"] == "/sign-in"
