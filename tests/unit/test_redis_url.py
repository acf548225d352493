"""URLs of Redis: what they say, what is refused with the way out, and that no password is ever shown."""

from __future__ import annotations

import traceback

import pytest

from lowkiq import Lowkiq
from lowkiq.errors import SettingsError
from lowkiq.redaction import redact
from lowkiq.redis_url import parse
from lowkiq.settings import Settings

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "kind", "addresses", "service", "options"),
    [
        ("redis://h:1/2", "server", [], "", {"host": "h", "port": 1, "db": 2}),
        ("redis://h:1/2/", "server", [], "", {"host": "h", "port": 1, "db": 2}),
        ("redis+cluster://a:1,b", "cluster", [("a", 1), ("b", 6379)], "", {}),
        ("redis+cluster://u:p%40@[::1]:7/0", "cluster", [("::1", 7)], "", {"username": "u", "password": "p@"}),
        ("redis+sentinel://a,b:2/main", "sentinel", [("a", 26379), ("b", 2)], "main", {}),
        ("redis+sentinel://:p@a/main/3?socket_timeout=2", "sentinel", [("a", 26379)], "main",
         {"password": "p", "db": 3, "socket_timeout": 2.0}),
    ],
)  # fmt: skip
def test_a_url_says(url: str, kind: str, addresses: list, service: str, options: dict) -> None:
    target = parse(url)
    assert (target.kind, target.addresses, target.service, target.options) == (kind, addresses, service, options)
    assert not target.is_tls


@pytest.mark.parametrize("url", ["rediss://h", "rediss+sentinel://h/main", "rediss+cluster://h"])
def test_two_s_are_tls(url: str) -> None:
    assert parse(f"{url}?ssl_ca_certs=/ca.crt").is_tls


def test_options_of_the_sentinels_are_theirs() -> None:
    target = parse("redis+sentinel://:a@h/main?sentinel_password=b&sentinel_socket_timeout=3&client_name=x")
    assert target.sentinel_options == {"password": "b", "socket_timeout": 3.0}
    assert target.options == {"password": "a", "client_name": "x"}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://h", "it must begin with redis://, rediss://, unix://, redis+sentinel://"),
        ("redis+sentinel://h1,h2", "the name of the service is missing"),
        ("redis+sentinel://h/main/x", "the database must be a number, not 'x'"),
        ("redis+cluster://h/1", "a cluster has no numbered databases"),
        ("redis+cluster://h1,,h2", "a host is missing"),
        ("redis+cluster://h:x", "a port must be a number"),
        ("redis://h:99999", "a port must be a number"),
        ("redis://h?socket_timout=1", "unknown option `socket_timout`, did you mean `socket_timeout`?"),
        ("redis+cluster://h?sentinel_password=1", "unknown option `sentinel_password`"),
        ("redis://h?ssl_ca_certs=/x", "ssl_ca_certs is for TLS: begin with rediss://"),
        ("redis://h?decode_responses=1", "the option decode_responses is Lowkiq's own"),
        ("redis://h?db=x", "Invalid value for 'db'"),
        ("redis://h:6379/x", "the database must be a number, not 'x', as in redis://host:6379/0"),
        ("rediss://h/main", "the database must be a number, not 'main'"),
        ("redis://h/1/2", "the database must be a number, not '1/2'"),
        ("redis://h/-1", "the database must be a number, not '-1'"),
        ("redis://h/0x1", "the database must be a number, not '0x1'"),
        ("redis://:pass/word@h/0", "In a password, write / as %2F"),
        ("redis://u:pass#word@h/0", "In a password, write / as %2F, : as %3A, @ as %40 and # as %23"),
        ("redis+cluster://h?health_check_interval=1", "redis-py has no health_check_interval for Cluster"),
    ],
)
def test_what_can_t_be_used_is_refused_with_the_way_out(url: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(url)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}@h:x",
        f"redis://:{SECRET}/x@h",
        f"redis://:x/{SECRET}@h",
        f"redis://:x#{SECRET}@h",
        f"redis://u:x:{SECRET}@h?nonsense=1",
        f"redis:u:{SECRET}@h",
        f"redis+sentinel://u:{SECRET}@h",
        f"redis+sentinel://u:{SECRET}@h?sentinel_password={SECRET}",
        f"redis+cluster://u:{SECRET}/{SECRET}@h/5",
        f"redis+cluster://h?password={SECRET}&nonsense=1",
        f"redis://h?password={SECRET}&db=x",
        f"rediss://h?ssl_password={SECRET}&db=x",
    ],
)
def test_no_refusal_shows_a_password_not_even_in_its_traceback(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(redis_url=url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_settings_are_shown_without_their_url() -> None:
    app = Lowkiq(redis_url=f"redis://u:{SECRET}@h")
    assert SECRET not in repr(app.settings)
    assert SECRET not in repr(app.caller.client)
    assert SECRET not in repr(app.caller.client.connection_pool)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:hunter2", "redis://u:***"),
        ("redis://:hunter2", "redis://:***"),
        ("redis://u:hun/ter2", "redis://u:***"),
        ("redis://u:123456789", "redis://u:***"),
        ("redis+sentinel://h1:26379,u:hunter2", "redis+sentinel://h1:26379,u:***"),
        ("u:hunter2", "u:***"),
        ("localhost:6379", "localhost:6379"),
        ("redis://host:port/0", "redis://host:port/0"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+cluster://h1:7000,[::1]:7001,h3?timeout=1", "redis+cluster://h1:7000,[::1]:7001,h3?timeout=1"),
        ("unix:///run/a:b/redis.sock?db=1", "unix:///run/a:b/redis.sock?db=1"),
    ],
)
def test_what_may_be_a_password_without_its_at_is_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_a_url_is_shown_with_its_hosts() -> None:
    shown = redact(f"redis+sentinel://u:{SECRET}@h1,h2/main?sentinel_password={SECRET}")
    assert shown == "redis+sentinel://u:***@h1,h2/main?sentinel_password=***"
