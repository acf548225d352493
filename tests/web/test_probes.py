"""Probes."""

from __future__ import annotations

from lowkiq import Lowkiq
from lowkiq.web import create_app
from tests.web.conftest import TOKEN


def test_it_lives_and_is_ready(make_web, browse):
    browser = browse(make_web())
    assert browser.get("/healthz").text == "ok\n"
    assert browser.get("/readyz").text == "ok\n"


def test_without_redis_it_lives_and_is_not_ready(browse):
    browser = browse(create_app(Lowkiq(redis_url="redis://anna:secret@127.0.0.1:1/0"), no_auth=True))
    assert browser.get("/healthz").status_code == 200
    ready = browser.get("/readyz")
    assert ready.status_code == 503
    assert ready.text == "Redis does not answer\n"


def test_probes_of_other_machines_need_no_credentials(make_web, browse):
    for options in ({}, {"token": TOKEN}):
        browser = browse(make_web(**options), "10.0.0.9", "http://10.0.0.1:8080")
        assert browser.get("/healthz").status_code == 200
        assert browser.get("/readyz").status_code == 200


def test_they_answer_get_and_head_only(make_web, browse):
    browser = browse(make_web())
    assert browser.send("HEAD", "/healthz", {}).status_code == 200
    assert browser.post("/healthz").status_code == 405
