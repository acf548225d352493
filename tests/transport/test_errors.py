"""What is said to do about an error of Redis is true of it, whichever of its words redis-py leaves."""

from __future__ import annotations

import pytest
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError

from lowkiq.transport.errors import advice

SAID = {
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": "is a replica",
    "READONLY You can't write against a read only replica.": "is a replica",
    "CLUSTERDOWN The cluster is down": "CLUSTER INFO",
    "CLUSTERDOWN Hash slot not served": "CLUSTER INFO",
    "MOVED 3999 127.0.0.1:6381": "redis+cluster://",
    "ASK 3999 127.0.0.1:6381": "redis+cluster://",
    "CROSSSLOT Keys in request don't hash to the same slot": "redis+cluster://",
    "ERR Error running script: script tried accessing undeclared key": "allow-undeclared-keys",
    "ERR unknown command 'CLIENT', with args beginning with: 'SETNAME'": "knows no such command",
    "ERR unknown command `CONFIG`, with args beginning with: ": "knows no such command",
    "ERR unknown command `INFO`": "knows no such command",
    "NOPERM this user has no permissions to run the 'client' command": "doctor",
    "MISCONF Redis is configured to save RDB snapshots": "disk",
    "OOM command not allowed when used memory > 'maxmemory'.": "memory is full",
    "LOADING Redis is loading the dataset in memory": "wait",
    "NOAUTH Authentication required.": "password",
    "WRONGPASS invalid username-password pair": "password",
}


@pytest.mark.parametrize(("reply", "says"), SAID.items())
def test_the_advice_on_a_refusal_names_the_cure(reply: str, says: str) -> None:
    error = DefaultParser.parse_error(reply)
    assert says in (advice(error) or "")
    in_script = DefaultParser.parse_error(f"ERR Error running script (call to f_1): @user_script:1: -{reply}")
    assert says in (advice(in_script) or "") or "LOADING" in reply


def test_of_what_is_unknown_nothing_is_said() -> None:
    assert advice(DefaultParser.parse_error("ERR syntax error")) is None


@pytest.mark.parametrize(
    "text",
    [
        "Error -2 connecting to r:6379. Name or service not known.",
        "Error -3 connecting to r:6379. Temporary failure in name resolution.",
        "the name r was not resolved within 5 s",
    ],
)
def test_a_name_that_is_not_resolved_is_told_as_such(text: str) -> None:
    assert "resolved: see" in (advice(RedisConnectionError(text)) or "")
