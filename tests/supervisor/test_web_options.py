"""Where the web view may listen: the supervisor's rules, and that they are the library's."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from lowkiq.errors import SettingsError
from lowkiq.web.security.access import Credentials
from lowkiq.web.server import check_address, parse_address
from lowkiq_supervisor.errors import UsageError
from lowkiq_supervisor.web_options import WebOptions, parse_bind

TOKEN = {"LOWKIQ_WEB_TOKEN": "t" * 20}
PAIR = {"LOWKIQ_WEB_USER": "ann", "LOWKIQ_WEB_PASSWORD": "p" * 20}

#: What people may write, what it means (None: it is refused), and whether it needs credentials.
ADDRESSES: list[tuple[str, tuple[str, int] | None, bool]] = [
    ("127.0.0.1:8080", ("127.0.0.1", 8080), False),
    (" 127.0.0.1:8080 ", ("127.0.0.1", 8080), False),
    ("127.0.0.2:80", ("127.0.0.2", 80), False),
    ("127.1:80", ("127.0.0.1", 80), False),
    ("localhost:8080", ("127.0.0.1", 8080), False),
    ("LocalHost:8080", ("127.0.0.1", 8080), False),
    ("8080", ("127.0.0.1", 8080), False),
    ("[::1]:8080", ("::1", 8080), False),
    ("[0:0:0:0:0:0:0:1]:8080", ("::1", 8080), False),
    ("[::ffff:127.0.0.1]:8080", ("::ffff:127.0.0.1", 8080), False),
    (":8080", ("0.0.0.0", 8080), True),
    ("0.0.0.0:8080", ("0.0.0.0", 8080), True),
    ("[::]:8080", ("::", 8080), True),
    ("[::ffff:10.0.0.7]:8080", ("::ffff:10.0.0.7", 8080), True),
    ("10.0.0.7:8080", ("10.0.0.7", 8080), True),
    ("192.168.1.5:65535", ("192.168.1.5", 65535), True),
    ("", None, False),
    (":", None, False),
    ("127.0.0.1", None, False),
    ("127.0.0.1:", None, False),
    ("127.0.0.1:65536", None, False),
    ("127.0.0.1:-1", None, False),
    ("127.0.0.1:http", None, False),
    ("127.0.0.1:8080:1", None, False),
    ("::1:8080", None, False),
    ("[::1]", None, False),
    ("[::1:8080", None, False),
    ("[:::1]:8080", None, False),
    ("[fe80::1%eth0]:8080", None, False),
    ("http://127.0.0.1:8080", None, False),
    (f"{'a' * 64}.example.com:8080", None, False),
    ("٨٠٨٠", None, False),
]

#: The environment, and whether it opens the view to those who know something; None: it is refused.
CREDENTIALS: list[tuple[dict[str, str], bool | None]] = [
    ({}, False),
    (TOKEN, True),
    (PAIR, True),
    (TOKEN | PAIR, True),
    ({"LOWKIQ_WEB_TOKEN": ""}, False),
    ({"LOWKIQ_WEB_USER": "", "LOWKIQ_WEB_PASSWORD": ""}, False),
    ({"LOWKIQ_WEB_TOKEN": "t" * 8}, True),
    ({"LOWKIQ_WEB_TOKEN": "t" * 7}, None),
    ({"LOWKIQ_WEB_USER": "ann"}, None),
    ({"LOWKIQ_WEB_PASSWORD": "p" * 20}, None),
    (TOKEN | {"LOWKIQ_WEB_USER": "ann"}, None),
    (PAIR | {"LOWKIQ_WEB_PASSWORD": "p" * 7}, None),
    (PAIR | {"LOWKIQ_WEB_USER": "a:b"}, None),
]


def resolve(bind: str | None, environ: dict[str, str] | None = None, **given: Any) -> WebOptions | None:
    flags = {"read_only": False, "payloads": True, "no_auth": False} | given
    return WebOptions.resolve(bind, environ=environ or {}, **flags)


@pytest.mark.parametrize(("text", "address", "_"), ADDRESSES)
def test_supervisor_and_library_read_the_same_address(text: str, address: tuple[str, int] | None, _: bool) -> None:
    if address is None:
        with pytest.raises(UsageError, match=r"--web .*: (give HOST:PORT, such as|there is no such host)"):
            parse_bind(text)
        with pytest.raises(SettingsError):
            parse_address(text)
    else:
        found = parse_address(text)
        assert parse_bind(text) == (found.host, found.port) == address


@pytest.mark.parametrize(("text", "address", "is_open"), [case for case in ADDRESSES if case[1]])
def test_both_want_credentials_for_the_same_addresses(text: str, address: tuple[str, int], is_open: bool) -> None:
    if not is_open:
        assert resolve(text)
        check_address(parse_address(text), Credentials.find({}), no_auth=False)
        return
    with pytest.raises(UsageError, match=r"is open to other machines: set LOWKIQ_WEB_TOKEN, or .* --web-no-auth"):
        resolve(text)
    with pytest.raises(SettingsError):
        check_address(parse_address(text), Credentials.find({}), no_auth=False)
    for environ, no_auth in ((TOKEN, False), (PAIR, False), ({}, True)):
        assert resolve(text, environ, no_auth=no_auth)
        check_address(parse_address(text), Credentials.find(environ), no_auth=no_auth)


@pytest.mark.parametrize(("environ", "is_known"), CREDENTIALS)
def test_both_take_and_refuse_the_same_credentials(environ: dict[str, str], is_known: bool | None) -> None:
    if is_known is None:
        with pytest.raises(UsageError, match="LOWKIQ_WEB_"):
            resolve("127.0.0.1:8080", environ)
        with pytest.raises(SettingsError):
            Credentials.find(environ)
        return
    assert bool(Credentials.find(environ)) is is_known
    if is_known:
        assert resolve(":8080", environ)
    else:
        with pytest.raises(UsageError):
            resolve(":8080", environ)


def test_a_refused_secret_is_not_told() -> None:
    with pytest.raises(UsageError) as refusal:
        resolve("127.0.0.1:8080", {"LOWKIQ_WEB_TOKEN": "hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_a_port_of_the_system_s_choice_is_refused_since_each_start_would_have_another() -> None:
    with pytest.raises(UsageError, match=r"--web 127\.0\.0\.1:0: the port would be another"):
        resolve("127.0.0.1:0")


def test_without_an_address_there_is_no_view_and_its_flags_are_refused() -> None:
    assert resolve(None, {"LOWKIQ_WEB_TOKEN": "short"}) is None
    for flag in ({"read_only": True}, {"payloads": False}, {"no_auth": True}):
        with pytest.raises(UsageError, match=r"--web-[a-z-]+ is for the web view: add .* --web 127\.0\.0\.1:8080"):
            resolve(None, **flag)


def test_flags_and_address_arrive() -> None:
    found = resolve("[::1]:8080", read_only=True, payloads=False, no_auth=True)
    assert found == WebOptions(host="::1", port=8080, read_only=True, payloads=False, no_auth=True)
    assert (found.address, WebOptions(host="10.0.0.7", port=80).address) == ("[::1]:8080", "10.0.0.7:80")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    with pytest.raises(UsageError, match=r"--web 8080 needs uvicorn: pip install 'lowkiq\[web\]'"):
        resolve("8080")
