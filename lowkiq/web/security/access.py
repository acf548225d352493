"""Access rules: credentials, names of hosts, sessions and write tokens. It decides; the guard refuses."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from lowkiq import clock
from lowkiq.environment import Credentials, is_loopback_address, make_token
from lowkiq.web.security.ended_sessions import EndedSessions

#: Seconds that a session lasts: a working day, so that a forgotten browser is not signed in for ever.
SESSION_SECONDS: Final = 12 * 3600
#: Key of the caller in the scope of a request, where the guard leaves it.
CALLER: Final = "lowkiq.caller"

#: Ends of names that nobody can have in public: of this machine, the local network, and a Kubernetes cluster.
PRIVATE: Final = (".localhost", ".local", ".internal", ".svc")
#: Rounds of the key's derivation: about 50 ms, once, so that what is signed does not make guessing a password cheap.
_KEY_ROUNDS: Final = 100_000


@dataclass(frozen=True)
class Caller:
    #: "bearer", "basic", "session", "anyone", or "django", whose own view has let it in.
    kind: str
    #: Binds write tokens, so that one session's does not serve another.
    nonce: str = ""
    #: The name that the credentials, the application around the view or a proxy know the caller by, for what is kept of
    #: writes; "" where none does.
    name: str = ""

    @property
    def needs_token(self) -> bool:
        """True when a browser may have authenticated by itself, on behalf of another site's page."""
        return self.kind != "bearer"


class Access:
    """
    Authenticates callers, and issues and checks sessions and write tokens.

    Args:
        no_auth: anybody may see, since something else protects the view.
        made_token: opens the view where there are neither credentials nor `no_auth`; else one is made up.
        hosts: names by which a view with `no_auth` may be called, beside addresses; None: any.
        shared: text that all processes of the same view have in common, for write tokens of a view with `no_auth`.
        now: Unix time, for the end of sessions.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        no_auth: bool = False,
        made_token: str = "",
        hosts: Sequence[str] | None = None,
        shared: str = "",
        now: Callable[[], float] = clock.real,
    ) -> None:
        self.no_auth = no_auth
        #: True if nobody has set credentials: then a token was made up, and only this machine may use it.
        self.is_made = not credentials and not no_auth
        self.credentials = Credentials(token=made_token or make_token()) if self.is_made else credentials
        self.ended = EndedSessions()
        self._hosts = hosts if no_auth else None
        self._now = now
        # Where the text is known to all, what a browser says of the origin of a write has to do.
        self._key = _derive_key(self.credentials, shared)
        #: Named after the key: cookies know no ports, and two views of one host must not end each other's sessions.
        self.cookie_name = f"lowkiq_session_{self._sign('cookie name')[:8]}"

    @property
    def can_sign_in(self) -> bool:
        return not self.no_auth

    def is_known_host(self, host: str) -> bool:
        """
        False for a name that may be a stranger's, who lets it point here so that a browser takes our pages for theirs
        (DNS rebinding). Addresses, names without a dot and private ones are no stranger's.
        """
        if self._hosts is None or "*" in self._hosts:
            return True
        name = name_of_host(host).rstrip(".")
        return bool(name) and (
            "." not in name
            or _is_address(name)
            or name.endswith(PRIVATE)
            or name in self._hosts
            or any(name.endswith(suffix) for suffix in self._hosts if suffix.startswith("."))
        )

    def caller_by_header(self, authorization: str) -> Caller | None:
        scheme, _, value = authorization.partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer":
            return Caller("bearer") if self._is_token(value) else None
        if scheme.lower() != "basic":
            return None
        user, _, password = _decode_basic(value).partition(":")
        # Clients that know nothing but Basic give the token as the password, under any name.
        is_user, is_token = self._is_password(user, password), self._is_token(password)
        return Caller("basic", name=user if is_user else "token") if is_user or is_token else None

    def caller_by_session(self, cookie: str) -> Caller | None:
        match = re.fullmatch(r"(\d{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})", cookie, re.ASCII)
        if match is None:
            return None
        expires, nonce, signature = match.groups()
        if not hmac.compare_digest(signature, self._sign("session", expires, nonce)) or int(expires) <= self._now():
            return None
        if self.ended.has(nonce):
            return None
        only_user = self.credentials.user if self.credentials.token is None else None
        return Caller("session", nonce, only_user or "")

    def new_session(self) -> str:
        """A cookie for somebody who has given the credentials."""
        expires, nonce = str(int(self._now()) + SESSION_SECONDS), secrets.token_hex(16)
        return f"{expires}.{nonce}.{self._sign('session', expires, nonce)}"

    def signs_in(self, *, token: str, user: str, password: str) -> bool:
        """Checks the fields of the sign-in form."""
        return self._is_token(token) | self._is_password(user, password)

    def write_token(self, request: Request) -> str:
        """Token that forms and scripts send to prove that they have read one of our own pages."""
        caller: Caller | None = request.scope.get(CALLER)
        return self.write_token_of(caller) if caller else ""

    def write_token_of(self, caller: Caller) -> str:
        return self._sign("write", caller.kind, caller.nonce)

    def is_write_token(self, caller: Caller, token: str) -> bool:
        return _same(token, self.write_token_of(caller))

    def _is_token(self, token: str) -> bool:
        return self.credentials.token is not None and _same(token, self.credentials.token)

    def _is_password(self, user: str, password: str) -> bool:
        if self.credentials.user is None or self.credentials.password is None:
            return False
        # Both are compared, whatever the first gives: how long it takes must not tell which was wrong.
        return _same(user, self.credentials.user) & _same(password, self.credentials.password)

    def _sign(self, *parts: str) -> str:
        return hmac.new(self._key, "\n".join(parts).encode(), hashlib.sha256).hexdigest()


def name_of_host(host: str) -> str:
    """The name or address in a Host header, in small letters; "" if it is none."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?", host, re.ASCII)
    return match[1].strip("[]").lower() if match else ""


def is_loopback_host(host: str) -> bool:
    """True for a Host header that names this machine by its loopback."""
    name = name_of_host(host)
    return name == "localhost" or is_loopback_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(given: str, expected: str) -> bool:
    """Compares in constant time; hashes, so that not even the length shows."""
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, expected))
    return hmac.compare_digest(one, other)


def _decode_basic(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _derive_key(credentials: Credentials, shared: str) -> bytes:
    # From these alone: every replica makes the same, and a change of the credentials ends all sessions.
    parts = (credentials.token, credentials.user, credentials.password) if credentials else (shared,)
    secret = b"\0".join((part or "").encode("utf-8", "surrogatepass") for part in parts)
    return hashlib.pbkdf2_hmac("sha256", secret, b"lowkiq web session", _KEY_ROUNDS)
