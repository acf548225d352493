"""A connection in doubt, on which a reply may still come, is closed: no command reads the reply of the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lowkiq.queue.call import Caller
from lowkiq.settings import Settings
from lowkiq.transport.connect import client_for_node, client_for_people, client_for_producers
from tests.transport.late_replies import LateReplies
from tests.transport.proxied import KINDS, proxied, settings_for

CLIENTS = {
    "people": client_for_people,
    "node": lambda settings: client_for_node(settings, 4),
    "producers": client_for_producers,
}
#: What asks for the value of a key.
WAYS: dict[str, Callable[[Caller, str], Any]] = {
    "command": lambda caller, key: caller.command("GET", key),
    "commands": lambda caller, key: caller.commands([("GET", key)])[0],
    "reads": lambda caller, key: caller.commands([("HMGET", key + "-hash", "x")])[0][0],
    "script": lambda caller, key: caller.commands([("EVAL", "return redis.call('GET', KEYS[1])", 1, key)])[0],
}


@contextmanager
def with_keys(kind: str, directory: Path) -> Iterator[LateReplies]:
    """A server that has keys a and b, behind a proxy."""
    with proxied(kind, directory, LateReplies) as (proxy, server):
        for key in "ab":
            server.ask("SET", key, f"value of {key}")
            server.ask("HSET", key + "-hash", "x", f"value of {key}")
        yield proxy


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], LateReplies]]:
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(with_keys(kind, tmp_path_factory.mktemp(kind))))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(kind: str, proxies: Callable[[str], LateReplies]) -> Iterator[LateReplies]:
    proxy = proxies(KINDS[kind])
    yield proxy
    proxy.keeps_next = False


@pytest.fixture
def settings(kind: str, proxy: LateReplies, monkeypatch: pytest.MonkeyPatch) -> Settings:
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    return Settings(**settings_for(kind, proxy, monkeypatch, 1.0, retry=retry))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_no_command_reads_the_reply_of_the_one_before(
    settings: Settings, proxy: LateReplies, kind: str, client: str, way: str
) -> None:
    caller, ask = Caller(CLIENTS[client](settings)), WAYS[way]
    assert ask(caller, "a") == b"value of a"
    proxy.keeps_next = True
    try:
        assert ask(caller, "a") == b"value of a"  # producers repeat it, and have it
    except redis.TimeoutError:
        assert client != "producers" or kind.startswith("user's")
    assert ask(caller, "b") == b"value of b"
    assert ask(caller, "a") == b"value of a"
    caller.close()


class Interrupted(BaseException):
    """Raised from outside while a reply is waited for, as a signal or a time limit does."""


@pytest.mark.parametrize("way", WAYS)
def test_nor_after_an_interruption(
    settings: Settings, proxy: LateReplies, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, ask = Caller(client_for_node(settings, 4)), WAYS[way]
    assert ask(caller, "a") == b"value of a"

    def interrupt(*_: object, **__: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(redis.Connection, "read_response", interrupt)
        ask(caller, "a")
    assert ask(caller, "b") == b"value of b"
    caller.close()
