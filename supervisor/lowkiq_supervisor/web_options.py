"""
The web view's options: where it listens, and whether that is safe.

The supervisor doesn't import `lowkiq`, so the rules of `lowkiq.web.server` and `lowkiq.web.security` are told here
once more, for a wrong option to be refused before anything starts; a test holds both to the same cases. The view's
process asks its own again.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from lowkiq_supervisor.errors import UsageError

#: What `lowkiq[web]` brings, and the web view can't do without.
NEEDED = ("starlette", "jinja2", "uvicorn", "prometheus_client")
#: Characters of a token or password; shorter ones can be guessed through the network.
SHORTEST_SECRET = 8

#: HOST:PORT, [V6]:PORT, :PORT or PORT.
_BIND = re.compile(r"(?:(?P<host>|[^\[\]:]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Validated; `WebOptions.resolve` makes them from what was given."""

    #: An IP address.
    host: str
    port: int
    read_only: bool = False
    payloads: bool = True
    #: Somebody else protects the view.
    no_auth: bool = False

    @classmethod
    def resolve(
        cls, bind: str | None, *, read_only: bool, payloads: bool, no_auth: bool, environ: Mapping[str, str]
    ) -> WebOptions | None:
        """
        The options of the web view; None: it isn't wanted.

        Raises:
            UsageError: the address is none, or is open to others who need no password, or the view isn't installed.
        """
        if bind is None:
            _refuse_what_needs_it({"read-only": read_only, "no-payloads": not payloads, "no-auth": no_auth})
            return None
        host, port = parse_bind(bind)
        if port == 0:
            raise UsageError(f"--web {bind}: the port would be another after every restart, give one from 1 to 65535")
        _refuse_bad_credentials(environ)
        if not (no_auth or is_loopback(host) or has_credentials(environ)):
            raise UsageError(
                f"--web {bind} is open to other machines: set LOWKIQ_WEB_TOKEN, or LOWKIQ_WEB_USER and "
                f"LOWKIQ_WEB_PASSWORD, or bind to 127.0.0.1:{port}, or say --web-no-auth if something else protects it"
            )
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(f"--web {bind} needs {', '.join(missing)}: pip install 'lowkiq[web]'")
        return cls(host=host, port=port, read_only=read_only, payloads=payloads, no_auth=no_auth)

    @property
    def address(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bind(bind: str) -> tuple[str, int]:
    """
    IP address and port. A port alone is this machine's; without a host before its colon, all of IPv4.

    Raises:
        UsageError: it is no address, or nobody knows the host.
    """
    match = _BIND.fullmatch(bind.strip())
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        raise UsageError(f"--web {bind!r}: give HOST:PORT, such as 127.0.0.1:8080, [::1]:8080, or :8080 for all")
    host, port = match["host"], int(match["port"])
    if host is None or host.lower() == "localhost":
        return "127.0.0.1", port
    if not host:
        return "0.0.0.0", port  # noqa: S104 - asked for; it needs credentials
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--web {bind!r}: there is no such host ({error}), give an address of this machine") from error
    return str(found[0][4][0]), port


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Whether the environment says who may see."""
    return bool(environ.get("LOWKIQ_WEB_TOKEN") or environ.get("LOWKIQ_WEB_USER"))


def _refuse_bad_credentials(environ: Mapping[str, str]) -> None:
    token, user, password = (environ.get(f"LOWKIQ_WEB_{name}", "") for name in ("TOKEN", "USER", "PASSWORD"))
    if bool(user) != bool(password):
        given, missing = ("USER", "PASSWORD") if user else ("PASSWORD", "USER")
        raise UsageError(f"LOWKIQ_WEB_{given} is set without LOWKIQ_WEB_{missing}: set both, or LOWKIQ_WEB_TOKEN alone")
    if ":" in user:
        raise UsageError(f"LOWKIQ_WEB_USER is {user!r}: it can't have a colon, where HTTP ends the name")
    for name, secret in (("TOKEN", token), ("PASSWORD", password)):
        if secret and len(secret) < SHORTEST_SECRET:
            raise UsageError(
                f"LOWKIQ_WEB_{name} has {len(secret)} characters, it must have {SHORTEST_SECRET} or more: "
                """python -c "import secrets; print(secrets.token_urlsafe())" makes one"""
            )


def _refuse_what_needs_it(flags: Mapping[str, bool]) -> None:
    for name, given in flags.items():
        if given:
            raise UsageError(f"--web-{name} is for the web view: add where it listens, such as --web 127.0.0.1:8080")
