"""Behind a proxy: links begin with its path, and what it tells is believed if it is one that was named."""

from __future__ import annotations

import pytest

from lowkiq import SettingsError
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.environment import Credentials
from lowkiq.web.application import make_web as make_view
from lowkiq.web.security.access import Access
from lowkiq.web.security.proxies import Prefixed, Proxies
from tests.web.reading import read, token_of


@pytest.mark.parametrize(
    ("root_path", "headers", "address", "prefix"),
    [
        ("", {}, "10.0.0.9", ""),
        ("/lowkiq/", {}, "10.0.0.9", "/lowkiq"),
        ("", {"x_forwarded_prefix": "/team/jobs/"}, "10.0.0.9", "/team/jobs"),
        ("/lowkiq", {"x_forwarded_prefix": "/jobs"}, "10.0.0.9", "/jobs"),
        ("/lowkiq", {"x_forwarded_prefix": "/jobs"}, "10.1.0.9", "/lowkiq"),  # a stranger
        ("", {"x_forwarded_prefix": "//evil.example"}, "10.0.0.9", ""),
        ("", {"x_forwarded_prefix": "/a b"}, "10.0.0.9", ""),
    ],
)
def test_links_begin_with_the_path_be_requests_with_it_or_without(
    make_web, browse, driver, root_path, headers, address, prefix
):
    browser = browse(Prefixed(make_web(), root_path, Proxies("10.0.0.0/24", "::1")), address)
    for path in {"/queues/q", f"{prefix}/queues/q"}:
        page = browser.get(path, **headers)
        assert page.status_code == 200 and f'href="{prefix}/nodes"' in page.text, path
        assert f'"{prefix}/static/style.css?' in page.text
    assert browser.get("/queues/q/job?id=1", **headers).status_code == 200


@pytest.mark.parametrize("path", ["lowkiq", "/a b", "/a//b", "https://x", "/../x", "/./x"])
def test_what_is_no_path_is_refused(make_web, path):
    with pytest.raises(SettingsError, match=r"--root-path is .* such as /lowkiq"):
        Prefixed(make_web(), path, Proxies())


def test_what_is_no_address_is_refused():
    with pytest.raises(SettingsError, match="LOWKIQ_WEB_PROXIES: 'proxy' does not appear"):
        Proxies("proxy")


@pytest.mark.parametrize(
    ("proxies", "address", "who"),
    [
        (("10.0.0.9",), "10.0.0.9", "ann at 10.0.0.9"),
        (("10.0.0.9",), "10.0.0.8", "anyone at 10.0.0.8"),
        ((), "10.0.0.8", "ann by X-Forwarded-User at 10.0.0.8"),
    ],
)
def test_a_name_counts_from_a_proxy_that_was_named(app, browse, driver, proxies, address, who):
    access = Access(Credentials(), no_auth=True)
    view = make_view(app, access, read_only=False, payloads=True, proxies=Proxies(*proxies))
    browser = browse(view, address)
    token = token_of(browser, "/queues/q/pause")
    body = f"token={token}&reason=x".encode()
    headers = {"content-type": "application/x-www-form-urlencoded", "x-forwarded-user": "ann"}
    assert browser.send("POST", "/queues/q/pause", headers, content=body).status_code == 303
    (deed,) = read_incidents(app.caller, app.settings.namespace, kind="pause")
    assert deed.who == who
    assert [row.who for row in read_incidents(app.caller, app.settings.namespace, who="ANN")] == [who] * ("ann" in who)
    assert (who in read(browser, "/incidents?who=ann").text) is ("ann" in who)
