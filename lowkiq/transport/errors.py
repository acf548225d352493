"""Errors of Redis: what is behind one, and the way out, for logs, exceptions and the doctor."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from redis import exceptions

from lowkiq.environment import find_redis_url

_PASSWORD: Final = "Redis refuses the user or password of its URL: set them right, and start anew"  # noqa: S105
_RIGHTS: Final = "the Redis user may not do this: `lowkiq doctor` says what it lacks"
_REPLICA: Final = "this Redis is a replica: give the primary's URL, or Sentinel's"
_MEMORY: Final = "Redis's memory is full: raise its maxmemory, or let nodes work the queues off"
#: Where nothing more is known than that there is no connection.
UNREACHABLE: Final = "Redis can't be reached: see whether it runs, and whether its URL is right"
_DISK: Final = (
    "Redis can't write to its disk, so it refuses all writes: see its log; is its disk full, or memory too short?"
)
_SILENT: Final = (
    "Redis does not answer: see its log, whether it is overloaded or stopped, or a firewall drops what is sent"
)
_CLUSTER: Final = "this is a server of Redis Cluster: begin the URL with redis+cluster:// (or rediss+cluster://)"
_SLOTS: Final = "the cluster lacks servers for some slots: see CLUSTER INFO"
_NAME: Final = "the name of Redis's host can't be resolved: see whether it is right, and whether DNS answers here"
_TLS: Final = (
    "see whether the server speaks TLS, and who signed its certificate: ?ssl_ca_certs=FILE in the URL names them"
)

#: Pattern in an error's text (Redis 6.2 puts a script's error into the text of another) → what to do.
_OF_TEXTS: Final[Mapping[str, str]] = {
    "max number of clients": "Redis has too many clients: raise its maxclients, or find who holds so many: CLIENT LIST",
    r"(?i)\bssl\b": _TLS,
    "protected mode": "Redis is in protected mode: set a password, or bind it to where it is safe",
    r"(?:^|-)(?:NOAUTH|WRONGPASS)\b": _PASSWORD,
    r"(?:^|-)NOPERM\b": _RIGHTS,
    r"(?:^|-)(?:READONLY|MASTERDOWN)\b": _REPLICA,
    r"(?:^|-)OOM\b": _MEMORY,
    r"(?:^|-)MISCONF\b": _DISK,
    r"(?:^|-)BUSY\b": "somebody's script or function keeps Redis busy: SCRIPT KILL or FUNCTION KILL ends it",
    r"(?:^|-)NOREPLICAS\b": "Redis wants replicas that are not there: bring them back, or lower min-replicas-to-write",
    r"(?:^|-)CLUSTERDOWN\b": _SLOTS,
    r"(?:^|-)(?:MOVED|ASK|CROSSSLOT)\b": _CLUSTER,
    "undeclared key": (
        "this server lets scripts use only keys that they are given, and Lowkiq's find more: start Dragonfly with "
        "--default_lua_flags=allow-undeclared-keys"
    ),
    "unknown command": (
        "this server, or a proxy before it, knows no such command, which Lowkiq needs: allow it there, or give the URL "
        "of a Redis or Valkey that does"
    ),
    r"not resolved|[Nn]ame resolution|Name or service not known|nodename nor servname|No address associated": _NAME,
    "No connection available": "all connections are in use: raise max_connections in the URL, or leave it out",
}
#: Class of error → what to do; the first that fits counts.
_OF_KINDS: Final[Mapping[type[Exception], str]] = {
    exceptions.AuthenticationError: _PASSWORD,
    exceptions.AuthenticationWrongNumberOfArgsError: _PASSWORD,
    exceptions.BusyLoadingError: "Redis is reading its data after a start: wait, nodes do the same",
    exceptions.NoPermissionError: _RIGHTS,
    exceptions.ReadOnlyError: _REPLICA,
    exceptions.MasterDownError: _REPLICA,
    exceptions.ClusterDownError: _SLOTS,
    exceptions.AskError: _CLUSTER,
    exceptions.ClusterCrossSlotError: _CLUSTER,
    exceptions.OutOfMemoryError: _MEMORY,
    exceptions.TimeoutError: _SILENT,
    exceptions.ConnectionError: UNREACHABLE,
}


def advice(error: BaseException) -> str | None:
    """Says what to do about an error; None where it has to speak for itself."""
    text = str(error)
    for pattern, what in _OF_TEXTS.items():
        if re.search(pattern, text):
            return what
    found = next((what for kind, what in _OF_KINDS.items() if isinstance(error, kind)), None)
    return found + _unset(text) if found == UNREACHABLE else found


def _unset(text: str) -> str:
    """What is to be added where nobody has named a Redis, and the usual one is not there."""
    is_usual = re.search(r"localhost:6379\b", text) and not find_redis_url(os.environ)
    return "; REDIS_URL is not set here, which names it, unless the application does" if is_usual else ""


def explained(error: BaseException) -> str:
    """The error in one line, with what to do about it."""
    what = advice(error)
    return f"{error} ({what})" if what else str(error)
