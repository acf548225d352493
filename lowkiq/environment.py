"""
The environment of a process: exit codes, the state directory, numbers of nodes, addresses and credentials.

Standard library only: the supervisor goes by the same rules, and imports no other part of the library before it forks.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from lowkiq.errors import LowkiqError, PushFailed, SettingsError, UsageError, needs_a_person
from lowkiq.process.place import find_state_directory

#: Bytes of a path that a unix socket's address holds on Linux, without the final zero.
LONGEST_SOCKET_PATH: Final = 107
#: Mode of a directory that others may write into.
OPEN_TO_OTHERS: Final = 0o022
#: Packages that `lowkiq[web]` brings, and the web view can't do without.
NEEDED_BY_THE_VIEW: Final = ("starlette", "jinja2", "uvicorn", "prometheus_client")
#: Variable in which the supervisor hands its web view the token that it has made up, the same after every restart.
MADE_UP: Final = "LOWKIQ_WEB_MADE_TOKEN"
#: Variable with the names under which a view that asks for no credentials is reached.
WEB_HOSTS: Final = "LOWKIQ_WEB_HOSTS"
#: Addresses of proxies that are believed, and the path under which the view is reached.
WEB_PROXIES: Final = "LOWKIQ_WEB_PROXIES"
WEB_ROOT_PATH: Final = "LOWKIQ_WEB_ROOT_PATH"
#: Threads of a node.
MOST_THREADS: Final = 1000
#: Weight of a queue, at most: how much of the threads it gets beside one of 1.
MOST_WEIGHT: Final = 1000
#: Characters of a token or password. Shorter ones can be guessed through the network.
SHORTEST_SECRET: Final = 8

_HIGHEST_PORT: Final = 65_535
#: HOST:PORT, [V6]:PORT, :PORT or PORT.
_ADDRESS: Final = re.compile(r"(?:(?P<host>|[^\[\]:]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")


class ExitCode(IntEnum):
    """Exit codes of nodes, supervisor and commands. Service managers and scripts go by them: they never change."""

    DRAINED = 0  # every job in hand was finished, or a burst is over
    INTERNAL = 1  # a bug, a job that raised BaseException, or a node's boot that may do better next time
    FAILED = 1  # of a command: it could not be done, or something isn't well
    USAGE = 2  # wrong options or environment: starting again won't help
    BOOT = 3  # a boot failed for what only a person can change; of the supervisor: every node's first one
    CRASH_LOOP = 4  # no node was ready for a minute
    FORCED_KILL = 5  # jobs were left running at the drain deadline
    RECYCLED = 75  # of a node: it asks for a successor, and has not failed
    ABANDONED = 130  # second INT, or QUIT


def code_of_import(error: BaseException) -> ExitCode:
    """The exit code, of either command, for an application that can't be imported."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    is_away = isinstance(error, PushFailed)
    is_for_a_person = isinstance(error, LowkiqError | SystemExit) or needs_a_person(error)
    return ExitCode.BOOT if is_for_a_person and not is_away else ExitCode.INTERNAL


# ── the state directory ─────────────────────────────────────────────────────────────────────────────────────────────


def state_directory(environment: Mapping[str, str], given: str | None = None) -> Path:
    """The directory where a supervisor keeps its socket, its dumps and the embedded Redis."""
    return Path(find_state_directory(environment, given))


def too_long_for_a_socket(path: str | Path) -> str:
    """The reason why a unix socket can't have this path, "" if it can."""
    length = len(os.fsencode(path))
    if length <= LONGEST_SOCKET_PATH:
        return ""
    return f"{path} is too long for a unix socket ({length} bytes, at most {LONGEST_SOCKET_PATH})"


# ── options and variables ───────────────────────────────────────────────────────────────────────────────────────────


class Found(NamedTuple):
    """A text, and the option or variable that it comes from."""

    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.source}={self.text}"

    def refusal(self, needed: str) -> UsageError:
        """The error for a text that can't be used."""
        return UsageError(f"{self.source} is {self.text!r}: {needed}")


def find(option: str, given: str | None, environment: Mapping[str, str], plain: str | None = None) -> Found | None:
    """The option, else LOWKIQ_<NAME>, else the plain name; an empty variable counts as unset."""
    if given is not None:
        return Found(given, option)
    own = "LOWKIQ_" + option.removeprefix("--").replace("-", "_").upper()
    return next((Found(environment[name], name) for name in (own, plain) if name and environment.get(name)), None)


def find_redis_url(environment: Mapping[str, str]) -> Found | None:
    return find("--redis-url", None, environment, "REDIS_URL")


def find_node_number(given: str | None, environment: Mapping[str, str]) -> Found | None:
    return find("--node-number", given, environment, "NODE_NUMBER")


def find_number_of_nodes(given: str | None, environment: Mapping[str, str]) -> Found | None:
    return find("--number-of-nodes", given, environment, "NUMBER_OF_NODES")


def parse_node_number(found: Found) -> int:
    """A number, or the one that a name ends in, such as that of a StatefulSet's pod; else a SettingsError."""
    match = re.fullmatch(r"(?:.+-)?([0-9]{1,9})", found.text.strip())
    if match is None:
        raise found.refusal("it must be a number from 0, or a name that ends in one, such as jobs-3")
    return int(match[1])


def parse_number_of_nodes(found: Found, lowest: int = 1) -> int:
    """The number of all nodes on all machines; a SettingsError for no number, or one that is too low."""
    if not re.fullmatch(r"[0-9]{1,9}", found.text.strip()) or int(found.text) < lowest:
        raise found.refusal("the number of all nodes is an integer from 1")
    return int(found.text)


def parse_queues(found: Found) -> dict[str, int | None]:
    """
    Names of queues, separated by commas, each with its weight if it has one: critical=8,default=1. A SettingsError for
    none, for a weight that can't be one, and for a queue of two weights.
    """
    weights: dict[str, int | None] = {}
    for part in filter(None, map(str.strip, found.text.split(","))):
        name, has_weight, text = (word.strip() for word in part.partition("="))
        if not name:
            raise found.refusal(f"{part!r} names no queue: say NAME or NAME=WEIGHT, such as critical=8")
        if has_weight and not (re.fullmatch(r"[0-9]{1,4}", text) and 1 <= int(text) <= MOST_WEIGHT):
            raise found.refusal(
                f"the weight of {name} is {text!r}, it must be an integer from 1 to {MOST_WEIGHT:,}, such as {name}=8"
            )
        weight = int(text) if has_weight else None
        if weights.setdefault(name, weight) != weight:
            raise found.refusal(f"{name} is named twice: give it one weight")
    if not weights:
        raise found.refusal("name queues, separated by commas, such as mail,video")
    return weights


def parse_threads(found: Found) -> int:
    """How many threads a node has; a SettingsError for another text."""
    if not re.fullmatch(r"[0-9]{1,4}", found.text.strip()) or not 1 <= int(found.text) <= MOST_THREADS:
        raise found.refusal(f"a node has from 1 to {MOST_THREADS:,} threads")
    return int(found.text)


# ── the web view ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Address:
    """An IP address and port to listen at."""

    host: str
    #: 0 lets the system choose.
    port: int

    @property
    def is_public(self) -> bool:
        """True if other machines can reach it."""
        return not is_loopback_address(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, refusal: str = "can't listen at") -> Address:
    """
    127.0.0.1:8080, localhost:8080, [::1]:8080; :8080 is all of IPv4, and 8080 alone is loopback.

    The SettingsError for another text, or an unknown host, begins with `refusal` and the text.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        raise SettingsError(f"{refusal} {text!r}: give HOST:PORT, such as 127.0.0.1:8080, [::1]:8080, or :8080 for all")
    host, port = match["host"], int(match["port"])
    if host is None or host.lower() == "localhost":
        return Address("127.0.0.1", port)
    if not host:
        return Address("0.0.0.0", port)  # noqa: S104 (asked for; check_address wants credentials)
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"{refusal} {text!r}: there is no such host ({error})") from error
    return Address(str(found[0][4][0]), port)


def is_loopback_address(address: str) -> bool:
    """True for an IP address of this machine's loopback."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def _variable(name: str) -> str:
    return f"LOWKIQ_WEB_{name.upper()}"


@dataclass(frozen=True)
class Credentials:
    """Open the web view: a token, or a user and password, or either. Never printed, never logged."""

    token: str | None = field(default=None, repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    #: Makes the name by which a message calls each of them.
    name: InitVar[Callable[[str], str]] = "the web view's {}".format

    def __post_init__(self, name: Callable[[str], str]) -> None:
        if (self.user is None) != (self.password is None):
            given, missing = ("user", "password") if self.password is None else ("password", "user")
            raise SettingsError(
                f"the web view has a {given} but no {missing}: set both LOWKIQ_WEB_USER and LOWKIQ_WEB_PASSWORD, "
                "or LOWKIQ_WEB_TOKEN alone"
            )
        # A secret read from a file often ends in a line end, with which it would never be right.
        if self.user is not None and ":" in self.user:
            raise SettingsError(f"{name('user')} can't have a colon in it: HTTP ends the name there")
        for kind, text in (("user", self.user), ("password", self.password)):
            if text is not None and not text.isprintable():
                raise SettingsError(
                    f"{name(kind)} has a line end or another control character in it, which nobody can type: "
                    f"check {_variable(kind)}"
                )
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise SettingsError(
                f"{name('token')} has a space, a line end or a letter beyond ASCII in it, which can't be sent in a "
                "header: check LOWKIQ_WEB_TOKEN"
            )
        for kind, secret in (("token", self.token), ("password", self.password)):
            if secret is not None and len(secret) < SHORTEST_SECRET:
                raise SettingsError(
                    f"{name(kind)} has {len(secret)} characters, it must have {SHORTEST_SECRET} or more: "
                    """python -c "import secrets; print(secrets.token_urlsafe())" makes one"""
                )

    def __bool__(self) -> bool:
        return self.token is not None or self.user is not None

    @classmethod
    def find(
        cls,
        environment: Mapping[str, str],
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> Credentials:
        """The given ones; if none was given, those of the environment. An empty one is none."""
        if token or user or password:
            return cls(token or None, user or None, password or None)
        token, user, password = (environment.get(_variable(kind)) or None for kind in ("token", "user", "password"))
        return cls(token, user, password, _variable)


def make_token() -> str:
    """A token for a web view without credentials."""
    return os.urandom(24).hex()


def link_to_sign_in(address: Address, token: str) -> str:
    return f"http://{address}/sign-in?token={token}"


def find_web_hosts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of hosts, in small letters; one that begins with a dot stands for all below it, "*" for all there are."""
    return tuple(environment.get(WEB_HOSTS, "").lower().replace(",", " ").split())


def find_web_proxies(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Addresses and networks of proxies in front of the view that are believed."""
    return tuple(environment.get(WEB_PROXIES, "").replace(",", " ").split())


def check_address(
    address: Address, credentials: Credentials, *, no_auth: bool, given: str = "", option: str = "--no-auth"
) -> None:
    """Refuses a view that would be open to everybody. `given` is the address as the person wrote it."""
    if address.is_public and not credentials and not no_auth:
        raise SettingsError(
            f"{given or address} is open to other machines: set LOWKIQ_WEB_TOKEN, or LOWKIQ_WEB_USER and "
            f"LOWKIQ_WEB_PASSWORD, or listen at 127.0.0.1:{address.port}, or say {option} if something else protects it"
        )
