"""Settings: where they come from, and what is said of those that can't be used."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq, LowkiqError, SettingsError
from lowkiq.redaction import redact
from lowkiq.settings import DEFAULT_URL, Settings, build


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without an embedded Redis."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(environment: dict[str, str] | None = None, **keywords: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        build(keywords, environment or {})
    return str(caught.value)


def test_keyword_wins_over_environment_wins_over_default() -> None:
    environment = {"LOWKIQ_THREADS_PER_NODE": "7", "LOWKIQ_POLL_INTERVAL": "0.5", "LOWKIQ_NAMESPACE": "shop"}
    settings = build({"threads_per_node": 9}, environment)
    assert (settings.threads_per_node, settings.poll_interval, settings.namespace) == (9, 0.5, "shop")
    assert (settings.lease_ttl, settings.claim_window, settings.max_crashes) == (15.0, 0.05, 3)


def test_an_empty_variable_counts_as_unset() -> None:
    empty = dict.fromkeys(["LOWKIQ_THREADS_PER_NODE", "LOWKIQ_NAMESPACE", "LOWKIQ_REDIS_URL", "REDIS_URL"], "")
    assert build({}, empty) == build({}, {})


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().namespace = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, DEFAULT_URL),
        ({"REDIS_URL": "redis://plain"}, "redis://plain"),
        ({"REDIS_URL": "redis://plain", "LOWKIQ_REDIS_URL": "redis://own"}, "redis://own"),
    ],
)
def test_own_url_variable_wins_over_the_plain_one(environment: dict[str, str], expected: str) -> None:
    assert build({}, environment).redis_url == expected


def test_an_embedded_redis_of_the_state_directory_is_found(elsewhere: Path) -> None:
    (elsewhere / "state" / "redis").mkdir(parents=True)
    expected = f"unix://{elsewhere}/state/redis/redis.sock"
    assert build({}, {"LOWKIQ_STATE_DIR": "state"}).redis_url == expected
    assert build({}, {"RUNTIME_DIRECTORY": f"{elsewhere}/state:/run/other"}).redis_url == expected
    assert build({}, {"LOWKIQ_STATE_DIR": "state", "REDIS_URL": "redis://given"}).redis_url == "redis://given"


@pytest.mark.parametrize("whose", ["state", "state/redis"])
def test_an_embedded_redis_of_another_user_is_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Whoever can write where we are could have all our jobs, and have us perform theirs."""
    (elsewhere / "state" / "redis").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(elsewhere / whose, 4_321, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 4_322)
    told = refusal({"LOWKIQ_STATE_DIR": "state"})
    assert "belongs to user" in told and "set LOWKIQ_REDIS_URL" in told
    assert build({}, {"LOWKIQ_STATE_DIR": "state", "REDIS_URL": "redis://given"}).redis_url == "redis://given"


def test_no_url_given_by_keyword_is_like_none_at_all() -> None:
    assert build({"redis_url": None}, {"REDIS_URL": "redis://plain"}).redis_url == "redis://plain"


def test_an_unknown_option_is_refused_with_the_closest_one() -> None:
    assert refusal(thread_per_node=3) == "unknown option `thread_per_node`, did you mean `threads_per_node`?"
    with pytest.raises(SettingsError, match="did you mean `poll_interval`"):
        Lowkiq(pol_interval=1)  # type: ignore[call-arg]


def test_an_option_like_no_other_is_refused_with_those_known() -> None:
    message = refusal(zzz=1)
    assert message.startswith("unknown option `zzz`, known are: ")
    assert "claim_window, client_middlewares" in message


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"threads_per_node": 0}, "threads_per_node is 0, it must be from 1 to 1000"),
        ({"threads_per_node": 1.5}, "threads_per_node must be an integer, not 1.5"),
        ({"threads_per_node": True}, "threads_per_node must be an integer, not True"),
        ({"threads_per_node": "5"}, "threads_per_node must be an integer, not '5'"),
        ({"threads_per_node": None}, "threads_per_node must be an integer, not None"),
        ({"poll_interval": math.nan}, "poll_interval must be a number, not nan"),
        ({"poll_interval": math.inf}, "poll_interval is inf, it must be from 0.01 to 3600"),
        ({"poll_interval": "1"}, "poll_interval must be a number, not '1'"),
        ({"poll_interval": 10**400}, "it must be from 0.01 to 3600"),
        ({"lease_ttl": 0.1}, "lease_ttl is 0.1, it must be from 0.3 to 3600"),
        ({"max_payloads": 1001}, "max_payloads is 1001, it must be from 1 to 1000"),
        ({"drain_timeout": -1}, "drain_timeout is -1, it must be from 0 to 86400"),
        ({"namespace": ""}, "namespace '' must match [A-Za-z0-9_.-]+"),
        ({"namespace": "a:b"}, "namespace 'a:b' must match"),
        ({"namespace": "{a}"}, "namespace '{a}' must match"),
        ({"namespace": "ends\n"}, "must match"),
        ({"namespace": 5}, "namespace 5 must match"),
        ({"redis_url": "localhost:6379"}, "it must begin with redis://, rediss://, unix://"),
        ({"redis_url": "http://host"}, "can't use the Redis URL 'http://host'"),
        ({"redis_url": "redis://host:port"}, "can't use the Redis URL 'redis://host:port'"),
        ({"redis_url": "redis://host?db=first"}, "can't use the Redis URL"),
        ({"redis_url": "redis://host?no_such_option=1"}, "can't use the Redis URL"),
        ({"redis_url": 5}, "redis_url must be a string, not 5"),
        ({"last_words": "bye"}, "last_words must be callable, not 'bye'"),
        ({"dump_payload": "json"}, "dump_payload must be callable, not 'json'"),
        ({"server_middlewares": print}, "server_middlewares must be a list of callables"),
        ({"client_middlewares": [1]}, "client_middlewares must be a list of callables"),
    ],
)
def test_what_can_t_be_used_is_refused_by_name(option: dict[str, Any], message: str) -> None:
    assert message in refusal(**option)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("LOWKIQ_THREADS_PER_NODE", "five", "LOWKIQ_THREADS_PER_NODE must be an integer, not 'five'"),
        ("LOWKIQ_THREADS_PER_NODE", "5.0", "LOWKIQ_THREADS_PER_NODE must be an integer, not '5.0'"),
        ("LOWKIQ_POLL_INTERVAL", "1s", "LOWKIQ_POLL_INTERVAL must be a number, not '1s'"),
        ("LOWKIQ_POLL_INTERVAL", "nan", "poll_interval must be a number, not nan"),
        ("LOWKIQ_LEASE_TTL", "0", "lease_ttl is 0.0, it must be from 0.3 to 3600"),
        ("LOWKIQ_NAMESPACE", "a b", "namespace 'a b' must match"),
        ("LOWKIQ_REDIS_URL", "nonsense", "can't use the Redis URL 'nonsense'"),
    ],
)
def test_what_can_t_be_used_of_the_environment_is_refused_by_name(variable: str, value: str, message: str) -> None:
    assert message in refusal({variable: value})


def test_a_settings_error_is_one_of_the_library_s_and_a_value_error() -> None:
    with pytest.raises(LowkiqError):
        Lowkiq(namespace="")
    with pytest.raises(ValueError, match="namespace"):
        Lowkiq(namespace="")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host/0", "redis://host/0"),
        ("redis://:secret@host/0", "redis://:***@host/0"),
        ("rediss://user:se:cr@et@host", "rediss://user:***@host"),
        ("redis://user:se/cret@host", "redis://user:***@host"),
        ("redis://host?password=secret&db=1", "redis://host?password=***&db=1"),
        ("unix://user:secret@/run/redis.sock", "unix://user:***@/run/redis.sock"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_no_refusal_of_a_url_shows_its_password() -> None:
    for url in ("http://u:hunter2@host", "redis://u:hunter2@host:port", "redis://host:port?password=hunter2"):
        assert "hunter2" not in refusal(redis_url=url)
