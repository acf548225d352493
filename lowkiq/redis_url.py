"""URLs of Redis: parsed, checked before a client is made from them, and shown without passwords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.cluster import REDIS_ALLOWED_KEYS
from redis.connection import AbstractConnection
from redis.connection import parse_url as _parse_url

from lowkiq.errors import SettingsError, short, unknown_option
from lowkiq.redaction import redact

parse_url: Callable[[str], dict[str, Any]] = _parse_url

Kind = Literal["server", "sentinel", "cluster"]

#: Scheme → the kind of Redis, redis-py's scheme for a connection to it, and its usual port.
SCHEMES: Final[Mapping[str, tuple[Kind, str, int]]] = {
    "redis": ("server", "redis", 6379),
    "rediss": ("server", "rediss", 6379),
    "unix": ("server", "unix", 0),
    "redis+sentinel": ("sentinel", "redis", 26379),
    "rediss+sentinel": ("sentinel", "rediss", 26379),
    "redis+cluster": ("cluster", "redis", 6379),
    "rediss+cluster": ("cluster", "rediss", 6379),
}

#: Prefix of options that are meant for the sentinels: sentinel_password is their password.
OF_SENTINELS: Final = "sentinel_"
#: Options that would change what Lowkiq reads, or that have their place elsewhere in the URL.
RESERVED: Final = frozenset({"decode_responses", "encoding", "encoding_errors", "host", "port", "path", "retry"})
_MALFORMED: Final = "it is malformed. In a password, write / as %2F, : as %3A, @ as %40 and # as %23"


class Target(NamedTuple):
    """The parts of a URL."""

    kind: Kind
    #: Hosts and ports, several of Sentinel and Cluster.
    addresses: Sequence[tuple[str, int]]
    #: The name of the service that the sentinels watch.
    service: str
    is_tls: bool
    #: For connections, as redis-py takes them.
    options: Mapping[str, Any]
    #: For connections to the sentinels.
    sentinel_options: Mapping[str, Any]


class _Refused(ValueError):
    """A refusal whose text shows nothing of a password."""


def parse(url: str) -> Target:
    """Raises SettingsError for a URL that no client can be made from; its text shows no password."""
    if not isinstance(url, str):
        raise SettingsError(f"redis_url must be a string, not {short(url)}")
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in SCHEMES:
        raise SettingsError(
            f"can't use the Redis URL {redact(url)!r}: it must begin with "
            + ", ".join(f"{scheme}://" for scheme in SCHEMES)
        )
    try:
        target = _target(url, scheme)
        _check_options(target)
    except _Refused as error:
        reason = str(error)
    except ValueError as error:  # redis-py's and urllib's; the latter quotes what may be a part of a password
        reason = str(error) if str(error).startswith("Invalid value for") else _MALFORMED
    else:
        return target
    raise SettingsError(f"can't use the Redis URL {redact(url)!r}: {reason}")


def _target(url: str, scheme: str) -> Target:
    kind, plain, port = SCHEMES[scheme]
    if kind == "server":
        if not url.startswith("unix:"):
            parts = urlsplit(url)
            if "@" in parts.path + parts.fragment:  # a password may be split at / or #
                raise ValueError(_MALFORMED)
            _address(parts.netloc.rpartition("@")[2] or "localhost", 6379)
            # redis-py takes any other path for database 0.
            if (db := unquote(parts.path).removeprefix("/").removesuffix("/")) and not (
                db.isascii() and db.isdecimal()
            ):
                raise _Refused(f"the database must be a number, not {short(db)}, as in redis://host:6379/0")
        return Target("server", [], "", plain == "rediss", parse_url(url), {})
    rest, _, query = url.partition("://")[2].partition("?")
    authority, _, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    service, db = _service_and_db(kind, path)
    ours, theirs = _split_options(query, kind)
    options = parse_url(f"{plain}://{credentials}{at}host/{db}?{urlencode(ours)}")
    for name in ("host", "connection_class", *(() if kind == "sentinel" else ("db",))):
        options.pop(name, None)
    return Target(
        kind,
        [_address(host, port) for host in hosts.split(",")],
        service,
        plain == "rediss",
        options,
        {name: value for name, value in parse_url(f"redis://host?{urlencode(theirs)}").items() if name != "host"},
    )


def _address(host: str, port: int) -> tuple[str, int]:
    if not host:
        raise _Refused("a host is missing; several are separated by commas, as in host1:6379,host2:6379")
    try:
        parts = urlsplit(f"//{host}")
        given = parts.port
    except ValueError:
        raise _Refused("a port must be a number from 1 to 65535") from None
    return parts.hostname or "", given or port


def _service_and_db(kind: Kind, path: str) -> tuple[str, str]:
    if kind == "cluster":
        if path.strip("/") not in {"", "0"}:
            raise _Refused("a cluster has no numbered databases; leave the path out")
        return "", ""
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise _Refused("the name of the service is missing, as in redis+sentinel://host1:26379,host2:26379/mymaster")
    if db and not db.isdecimal():
        raise _Refused(f"the database must be a number, not {short(db)}")
    return service, db


def _split_options(query: str, kind: Kind) -> tuple[dict[str, str], dict[str, str]]:
    ours, theirs = {}, {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if kind == "sentinel" and name.startswith(OF_SENTINELS):
            theirs[name.removeprefix(OF_SENTINELS)] = value
        else:
            ours[name] = value
    return ours, theirs


def _check_options(target: Target) -> None:
    known = _known_options()
    for name in (*target.options, *target.sentinel_options):
        if name in {"host", "port", "path", "connection_class"}:
            continue
        if name in RESERVED:
            raise _Refused(f"the option {name} is Lowkiq's own")
        if name not in known:
            raise _Refused(str(unknown_option("option", name, known)))
        if name.startswith("ssl_") and not target.is_tls:
            raise _Refused(f"{name} is for TLS: begin with rediss://, rediss+sentinel:// or rediss+cluster://")
        if target.kind == "cluster" and name not in REDIS_ALLOWED_KEYS:
            raise _Refused(f"redis-py has no {name} for Cluster")
    pool: Any = redis.BlockingConnectionPool
    tls = {"connection_class": redis.SSLConnection} if target.is_tls else {}
    try:
        pool(**(dict(target.options) | tls)).make_connection()  # connects to nothing yet
    except TypeError as error:
        raise _Refused(str(error)) from None


@cache
def _known_options() -> list[str]:
    """Options of redis-py's connections and pools of any kind."""
    makers = (
        AbstractConnection,
        redis.Connection,
        redis.SSLConnection,
        redis.UnixDomainSocketConnection,
        redis.BlockingConnectionPool,
    )
    names = {name for maker in makers for name in inspect.signature(maker.__init__).parameters}
    return sorted(names - {"self", "kwargs", "connection_kwargs"} - RESERVED)
