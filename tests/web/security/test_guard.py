"""Requests that are let through or refused, before any page or operation sees them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from starlette.requests import Request

from lowkiq.environment import Credentials
from lowkiq.web import create_app
from lowkiq.web.application import make_web as make_web_of
from lowkiq.web.security.access import CALLER, Access, Caller
from lowkiq.web.security.guard import who_of
from tests.web.conftest import TOKEN
from tests.web.rooms import token_of, with_rooms

BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def make_web(make_web):
    """The view, with routes of the tests' own."""
    return lambda **options: with_rooms(make_web(**options))


MADE = "a-token-that-was-made-up"


@pytest.fixture
def made(app):
    """A view for which nobody has set credentials."""
    return with_rooms(make_web_of(app, Access(Credentials(), made_token=MADE), read_only=False, payloads=True))


class TestWithoutCredentials:
    def test_a_link_signs_a_browser_of_this_machine_in_and_leaves_no_token_in_its_address(self, made, browse):
        for browser in (browse(made), browse(made, "::1", "http://[::1]:8080")):
            assert browser.get("/echo").status_code == 303
            assert browser.get("/api/v1/stats").status_code == 401
            answer = browser.get(f"/sign-in?token={MADE}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            assert answer.headers["referrer-policy"] == "same-origin"
            assert "samesite=strict" in answer.headers["set-cookie"].lower()
            assert browser.get("/echo").json()["kind"] == "session"

    def test_a_program_sends_it_as_its_token(self, made, browse):
        assert browse(made).get("/echo", authorization=f"Bearer {MADE}").json()["kind"] == "bearer"

    def test_another_token_does_not(self, made, browse):
        browser = browse(made)
        assert browser.get(f"/sign-in?token={MADE}x").status_code == 401
        assert browser.get("/echo").status_code == 303

    def test_each_process_makes_up_its_own_and_tells_it_once(self, app, capsys):
        create_app(app), create_app(app)
        links = re.findall(r"/sign-in\?token=(\w{48})", capsys.readouterr().out)
        assert len(set(links)) == len(links) == 2

    def test_a_page_of_another_site_cannot_keep_the_link_from_working(self, made, browse):
        """Its images come from this machine, too; each with a wrong token."""
        browser = browse(made)
        for dest, status in (("image", 200), ("iframe", 200), ("document", 303)):
            answer = browser.get(f"/sign-in?token={MADE}", sec_fetch_dest=dest, sec_fetch_site="cross-site")
            assert (answer.status_code, "set-cookie" in answer.headers) == (status, status == 303), dest

    def test_with_credentials_no_link_is_made_nor_taken(self, make_web, browse, capsys):
        browser = browse(make_web(token=TOKEN))
        assert "web_link" not in capsys.readouterr().out
        assert browser.get(f"/sign-in?token={TOKEN}").status_code == 200

    def test_another_machine_may_not_and_learns_what_to_set(self, made, browse):
        for path in ("/echo", "/sign-in", f"/sign-in?token={MADE}"):
            response = browse(made, "10.0.0.9").get(path)
            assert response.status_code == 403
            assert "LOWKIQ_WEB_TOKEN" in response.text
            assert "--no-auth" in response.text

    def test_a_name_that_only_points_here_may_not(self, made, browse):
        """DNS rebinding: the browser is local, the page it shows is a stranger's."""
        for path in ("/echo", "/metrics", "/sign-in"):
            browser = browse(made, url="http://evil.example:8080")
            assert browser.get(path, authorization=f"Bearer {MADE}").status_code == 403

    @pytest.mark.parametrize(
        "name", ["forwarded", "x_forwarded_for", "x_real_ip", "x_forwarded_host", "x_forwarded_proto", "via"]
    )
    def test_what_came_through_a_proxy_may_not(self, made, browse, name):
        assert browse(made).get("/echo", **{name: "x", "authorization": f"Bearer {MADE}"}).status_code == 403

    @pytest.mark.parametrize(
        "changes", [{"client": None}, {"http_version": "1.0"}, {"headers": [(b"host", b"localhost")] * 2}]
    )
    def test_nor_what_looks_like_one(self, made, changes):
        """A client without an address; HTTP/1.0, as proxies speak it by default; two names."""
        scope = {"type": "http", "method": "GET", "path": "/echo", "headers": [(b"host", b"localhost")]}
        scope |= {"query_string": b"", "scheme": "http", "server": None, "client": ("127.0.0.1", 1)}
        sent = asyncio.run(_ask(made, scope | changes, {"type": "http.request"}))
        assert sent[0]["status"] == 403
        assert asyncio.run(_ask(made, scope, {"type": "http.request"}))[0]["status"] == 303


class TestWithoutAnyAuthentication:
    def test_anybody_may(self, make_web, browse):
        browser = browse(make_web(no_auth=True), "10.0.0.9", "http://jobs.example")
        assert browser.get("/echo", x_forwarded_for="1.2.3.4").json()["kind"] == "anyone"

    def test_an_application_around_it_may_say_who_it_is(self, make_web):
        caller = Caller("django", "nonce", name="ann")
        scope = {"type": "http", "method": "GET", "path": "/echo", "headers": [(b"host", b"localhost")]}
        scope |= {"query_string": b"", "scheme": "http", "server": None, "client": ("10.0.0.9", 1), CALLER: caller}
        sent = asyncio.run(_ask(make_web(no_auth=True), scope, {"type": "http.request"}))
        assert json.loads(sent[1]["body"])["kind"] == "django"
        assert who_of(Request(scope)) == "ann at 10.0.0.9"
        refused = asyncio.run(_ask(make_web(no_auth=False), scope, {"type": "http.request"}))
        assert refused[0]["status"] == 403

    @pytest.mark.parametrize(
        ("headers", "name"),
        [
            ({}, "anyone"),
            ({"x_forwarded_for": "1.2.3.4"}, "anyone"),
            ({"x_forwarded_user": "ann"}, "ann by X-Forwarded-User"),
            ({"remote_user": "ann", "x_forwarded_email": "ann@example.com"}, "ann by Remote-User"),
            ({"x_forwarded_user": " ", "x_forwarded_email": "a@b"}, "a@b by X-Forwarded-Email"),
            ({"x_auth_request_user": "zoë\u202e".encode()}, "zoë\\u202e by X-Auth-Request-User"),
            ({"remote_user": b"\xff" * 200}, r"\xff" * 25 + "… by Remote-User"),
        ],
    )
    def test_a_proxy_may_say_who_somebody_is(self, make_web, browse, headers, name):
        assert browse(make_web(no_auth=True)).get("/who", **headers).json() == f"{name} at 127.0.0.1"
        known = browse(make_web(token=TOKEN)).get("/who", **BEARER, **headers)
        assert known.json() == "token at 127.0.0.1"

    @pytest.mark.parametrize(
        ("host", "hosts", "status"),
        [
            ("evil.example", (), 403),
            ("jobs.example.evil.example", ("jobs.example",), 403),
            ("evil-jobs.example", (".jobs.example",), 403),
            ("10.0.0.1.evil.example", (), 403),
            *(
                (host, (), 200)
                for host in ("localhost", "127.0.0.1:8080", "10.0.0.7", "[fe80::1]:80", "shop-web", "web.shop.svc:80")
            ),
            *((host, ("jobs.example",), 200) for host in ("jobs.example:8080", "JOBS.example", "jobs.example.")),
            ("a.jobs.example", (".jobs.example",), 200),
            ("evil.example", ("*",), 200),
        ],
    )
    def test_but_by_a_name_that_is_known(self, app, browse, host, hosts, status):
        """DNS rebinding again: a stranger's page in the browser of somebody who reaches the view."""
        access = Access(Credentials(), no_auth=True, hosts=hosts)
        browser = browse(with_rooms(make_web_of(app, access, read_only=False, payloads=True)), "10.0.0.9")
        answer = browser.get("/echo", host=host)
        assert answer.status_code == status
        assert ("LOWKIQ_WEB_HOSTS" in answer.text) is (status == 403)
        assert browser.get("/healthz", host=host).status_code == 200


def test_a_websocket_is_refused(make_web):
    scope = {"type": "websocket", "path": "/api/v1/stats", "headers": [], "query_string": b"", "scheme": "ws"}
    sent = asyncio.run(_ask(make_web(), scope, {"type": "websocket.connect"}))
    assert [message["type"] for message in sent] == ["websocket.close"]


async def _ask(web, scope, received):
    """The messages sent in answer to a request that httpx can't make."""
    sent: list[Any] = []

    async def send(message):
        sent.append(message)

    async def receive():
        return received

    await web(scope, receive, send)
    return sent


class TestWithCredentials:
    def test_those_who_give_them_may(self, make_web, browse):
        browser = browse(make_web(token=TOKEN), "10.0.0.9", "http://jobs.example")
        assert browser.get("/echo", **BEARER, x_forwarded_for="1.2.3.4").json()["kind"] == "bearer"

    def test_loopback_is_nothing_special_then(self, make_web, browse):
        assert browse(make_web(token=TOKEN)).get("/echo").status_code == 303

    def test_they_may_come_from_the_environment(self, monkeypatch, make_web, browse):
        monkeypatch.setenv("LOWKIQ_WEB_TOKEN", TOKEN)
        assert browse(make_web(no_auth=False)).get("/echo", **BEARER).json()["kind"] == "bearer"

    def test_people_are_led_to_the_form_and_back(self, make_web, browse):
        response = browse(make_web(token=TOKEN)).get("/queues/a?view=due&pattern=%2F%2Fx")
        assert response.status_code == 303
        assert response.headers["location"] == "/sign-in?next=/queues/a%3Fview%3Ddue%26pattern%3D%252F%252Fx"

    @pytest.mark.parametrize("path", ["/api/v1/stats", "/api/v1/openapi.json", "/api/", "/metrics"])
    def test_programs_are_told_in_json_and_no_browser_opens_a_dialog(self, make_web, browse, path):
        response = browse(make_web(token=TOKEN)).get(path)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer" in response.json()["error"]

    def test_wrong_ones_are_none(self, make_web, browse):
        browser = browse(make_web(token=TOKEN))
        assert browser.get("/api/v1/stats", authorization="Bearer wrong").status_code == 401
        assert browser.get("/echo", authorization="Bearer wrong").status_code == 303

    def test_a_session_counts_also_beside_a_proxys_own_authorization(self, make_web, browse):
        browser = browse(make_web(token=TOKEN))
        browser.post("/sign-in", {"access_token": TOKEN})
        assert browser.get("/echo", authorization="Basic cHJveHk6cHJveHk=").json()["kind"] == "session"

    @pytest.mark.parametrize("path", ["/healthz", "/static/style.css", "/sign-in"])
    def test_probes_looks_and_the_form_are_open(self, make_web, browse, path):
        assert browse(make_web(token=TOKEN), "10.0.0.9").get(path).status_code == 200

    @pytest.mark.parametrize(
        "path", ["/healthz/", "/healthz/../echo", "//healthz", "/healthz%2f..", "/Healthz", "/static", "/staticecho"]
    )
    def test_what_only_looks_open_is_not(self, make_web, browse, path):
        assert browse(make_web(token=TOKEN), "10.0.0.9").get(path).status_code == 303

    @pytest.mark.parametrize("path", ["/static/../access.py", "/static/%2e%2e/access.py", "/static/..%2faccess.py",
                                      "/static/", "/static/%00", "/static/" + "a" * 5000])  # fmt: skip
    def test_only_the_static_files_are_served(self, make_web, browse, path):
        assert browse(make_web(token=TOKEN)).get(path).status_code in {303, 400, 404}


class TestWrites:
    def test_one_needs_the_token(self, make_web, browse):
        web = make_web()
        browser, token = browse(web), token_of(web)
        assert browser.post("/echo", {"ids": ["1", "ü"], "token": token}).json() == {
            "kind": "anyone",
            "size": len(f"ids=1&ids=%C3%BC&token={token}"),
            "form": [["ids", "1"], ["ids", "ü"], ["token", token]],
        }
        assert browser.post("/echo", x_lowkiq_token=token).status_code == 200
        assert browser.send("POST", "/echo", {"x_lowkiq_token": token}, json={"a": 1}).json()["size"] == 7

    @pytest.mark.parametrize("token", ["", "x" * 64, "ü"])
    def test_without_it_one_is_refused_and_told_to_reload(self, make_web, browse, token):
        browser = browse(make_web())
        for refused in (browser.post("/echo", {"token": token}), browser.post("/echo")):
            assert refused.status_code == 403
            assert "reload the page" in refused.text
        assert "reload the page" in browser.post("/api/v1/echo").json()["error"]

    def test_a_token_in_the_address_does_not_count(self, make_web, browse):
        web = make_web()
        assert browse(web).post(f"/echo?token={token_of(web)}").status_code == 403

    def test_a_bearer_needs_none(self, make_web, browse):
        assert browse(make_web(token=TOKEN)).post("/echo", **BEARER).json()["kind"] == "bearer"

    @pytest.mark.parametrize("kind", ["basic", "session"])
    def test_what_a_browser_sends_by_itself_does(self, make_web, browse, kind):
        browser = browse(make_web(user="anna", password=TOKEN))
        headers = {"authorization": "Basic YW5uYTphLXRva2VuLW9mLXRoZS10ZXN0cw=="} if kind == "basic" else {}
        if kind == "session":
            browser.post("/sign-in", {"user": "anna", "password": TOKEN})
        assert browser.get("/echo", **headers).json()["kind"] == kind
        assert browser.post("/echo", **headers).status_code == 403

    def test_one_of_another_process_on_the_same_redis_does(self, make_web, browse):
        token = browse(make_web()).get("/api/v1/token").json()["token"]
        assert browse(make_web()).post("/echo", {"token": token}).status_code == 200

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            *(({"sec_fetch_site": site}, 403) for site in ("cross-site", "same-site", "")),
            *(({"origin": f"http://{host}"}, 403) for host in ("evil.example", "localhost:81", "localhost.evil.com")),
            ({"origin": "null"}, 403),
            ({"sec_fetch_site": "same-origin", "origin": "http://evil.example"}, 403),
            ({"sec_fetch_site": "cross-site", "origin": "http://localhost"}, 403),
            ({"sec_fetch_site": "same-origin", "origin": "http://localhost"}, 200),
            ({"sec_fetch_site": "none"}, 200),
            *(({"origin": f"{scheme}://localhost"}, 200) for scheme in ("http", "https")),
        ],
    )
    def test_one_is_taken_from_pages_of_ours_alone_whatever_its_token(self, make_web, browse, headers, status):
        """Ours is also one where TLS ends in front of us, which makes the browser's origin https."""
        web = make_web()
        assert browse(web).post("/echo", {"token": token_of(web)}, **headers).status_code == status

    def test_an_https_view_takes_nothing_from_a_page_that_came_without_tls(self, make_web, browse):
        browser = browse(make_web(token=TOKEN), url="https://jobs.example")
        assert browser.post("/echo", **BEARER, origin="http://jobs.example").status_code == 403

    def test_who_writes_is_logged_and_what_is_written_is_not(self, make_web, browse, capsys):
        browse(make_web(token=TOKEN), "10.0.0.9").post("/echo", {"ids": "an-id"}, **BEARER)
        log = capsys.readouterr().out
        assert "web_write" in log
        assert "10.0.0.9" in log
        assert TOKEN not in log
        assert "an-id" not in log

    def test_read_only_refuses_all_but_signing_in_and_out(self, make_web, browse):
        browser = browse(make_web(token=TOKEN, read_only=True))
        assert "read-only" in browser.post("/echo", **BEARER).text
        assert "read-only" in browser.post("/api/v1/echo", **BEARER).json()["error"]
        assert browser.post("/sign-in", {"access_token": TOKEN}).status_code == 303
        assert browser.get("/echo").status_code == 200
        assert browser.post("/sign-out").status_code == 303
        assert browser.get("/echo").status_code == 303

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"])
    def test_other_methods_are_refused(self, make_web, browse, method):
        response = browse(make_web()).send(method, "/echo", {})
        assert response.status_code == 405
        assert response.headers["allow"] == "GET, HEAD, POST"


class TestBodies:
    @pytest.mark.parametrize(
        ("content_type", "limit"), [("application/x-www-form-urlencoded", 64 << 10), ("application/json", 1 << 20)]
    )
    def test_a_large_one_is_refused(self, make_web, browse, content_type, limit):
        browser = browse(make_web(token=TOKEN))
        headers = {"content_type": content_type, **BEARER}
        assert browser.send("POST", "/echo", headers, content=b"x" * limit).json()["size"] == limit
        assert browser.send("POST", "/echo", headers, content=b"x" * (limit + 1)).status_code == 413
        assert browser.send("POST", "/api/v1/echo", headers, content=b"x" * (limit + 1)).json()["error"]

    @pytest.mark.parametrize(("length", "status"), [("9" * 5000, 413), ("-1", 413), ("", 200), ("0" * 3 + "4", 200)])
    def test_a_length_may_be_anything(self, make_web, browse, length, status):
        headers = {"content_length": length, **BEARER}
        assert browse(make_web(token=TOKEN)).send("POST", "/echo", headers, content=b"body").status_code == status

    def test_one_of_unknown_length_is_refused_as_well(self, make_web, browse):
        async def chunks():
            for _ in range(1000):
                yield b"x" * 1000

        browser = browse(make_web(token=TOKEN))
        assert browser.send("POST", "/echo", dict(BEARER), content=chunks()).status_code == 413

    def test_ids_come_through_as_they_are(self, make_web, browse):
        web = make_web()
        hostile = ["<script>", "a&b=c", "a+b", "%41", "\x00\x1b", "\u202e", "", " "]
        form = browse(web).post("/echo", {"ids": hostile, "token": token_of(web)}).json()["form"]
        assert [value for name, value in form if name == "ids"] == hostile
