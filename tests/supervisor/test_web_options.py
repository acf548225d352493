"""Where the web view may listen, and who is told what to say for it: `lowkiq web` and the supervisor."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from lowkiq.environment import Credentials, check_address, parse_address
from lowkiq.errors import SettingsError
from lowkiq_supervisor.options import Options

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


def resolve(bind: str | None, environ: dict[str, str] | None = None, **given: Any) -> Options:
    return Options.resolve(app="shop", web=bind, environ=environ or {}, **given)


@pytest.mark.parametrize(("text", "address", "_"), ADDRESSES)
def test_an_address_is_read_or_refused_in_the_words_of_the_option(
    text: str, address: tuple[str, int] | None, _: bool
) -> None:
    if address is None:
        with pytest.raises(SettingsError, match=r"--web .*: (give HOST:PORT, such as|there is no such host)"):
            resolve(text)
        with pytest.raises(SettingsError, match=r"can't listen at "):
            parse_address(text)
    else:
        found = parse_address(text)
        assert (found.host, found.port) == address
        assert resolve(text, TOKEN).web == found


@pytest.mark.parametrize(("text", "address", "is_open"), [case for case in ADDRESSES if case[1]])
def test_an_open_address_needs_credentials_or_a_word(text: str, address: tuple[str, int], is_open: bool) -> None:
    if not is_open:
        assert resolve(text).web
        check_address(parse_address(text), Credentials.find({}), no_auth=False)
        return
    with pytest.raises(SettingsError, match=r"is open to other machines: set LOWKIQ_WEB_TOKEN, or .* --web-no-auth"):
        resolve(text)
    with pytest.raises(SettingsError, match=r"is open to other machines: set LOWKIQ_WEB_TOKEN, or .* --no-auth"):
        check_address(parse_address(text), Credentials.find({}), no_auth=False)
    for environ, no_auth in ((TOKEN, False), (PAIR, False), ({}, True)):
        assert resolve(text, environ, web_no_auth=no_auth).web
        check_address(parse_address(text), Credentials.find(environ), no_auth=no_auth)


@pytest.mark.parametrize(("environ", "is_known"), CREDENTIALS)
def test_credentials_are_whole_and_long_enough(environ: dict[str, str], is_known: bool | None) -> None:
    if is_known is None:
        with pytest.raises(SettingsError, match="LOWKIQ_WEB_"):
            resolve("127.0.0.1:8080", environ)
        with pytest.raises(SettingsError):
            Credentials.find(environ)
        return
    assert bool(Credentials.find(environ)) is is_known
    if is_known:
        assert resolve(":8080", environ).web
    else:
        with pytest.raises(SettingsError):
            resolve(":8080", environ)


def test_a_refused_secret_is_not_told() -> None:
    with pytest.raises(SettingsError) as refusal:
        resolve("127.0.0.1:8080", {"LOWKIQ_WEB_TOKEN": "hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_a_port_of_the_system_s_choice_is_refused_since_each_start_would_have_another() -> None:
    with pytest.raises(SettingsError, match=r"--web 127\.0\.0\.1:0: the port would be another"):
        resolve("127.0.0.1:0")


def test_without_an_address_there_is_no_view_and_its_flags_are_refused() -> None:
    assert resolve(None, {"LOWKIQ_WEB_TOKEN": "short"}).web is None
    for flag in ("web_read_only", "web_no_payloads", "web_no_auth"):
        with pytest.raises(SettingsError, match=r"--web-[a-z-]+ is for the web view: add .* --web 127\.0\.0\.1:8080"):
            resolve(None, **{flag: True})


def test_flags_and_address_arrive() -> None:
    found = resolve("[::1]:8080", web_read_only=True, web_no_payloads=True, web_no_auth=True)
    assert (found.web_read_only, found.web_no_payloads, found.web_no_auth, str(found.web)) == (
        *[True] * 3,
        "[::1]:8080",
    )


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    with pytest.raises(SettingsError, match=r"--web 8080 needs uvicorn: pip install 'lowkiq\[web\]'"):
        resolve("8080")
