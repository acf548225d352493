"""Proxies in front of the view: which of them are believed, and the path under which people reach it."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lowkiq.environment import WEB_PROXIES
from lowkiq.errors import SettingsError, short

#: A prefix: segments, each after a slash.
_PREFIX: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]{1,100}){1,10}")


class Proxies:
    """The addresses and networks of those that are believed."""

    def __init__(self, *addresses: str) -> None:
        try:
            self._networks = [ipaddress.ip_network(address, strict=False) for address in addresses]
        except ValueError as error:
            raise SettingsError(f"{WEB_PROXIES}: {error}: give addresses or networks, such as 10.0.0.0/8") from error

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, host: str | None) -> bool:
        """True for the address of one of them."""
        try:
            address = ipaddress.ip_address(host or "")
        except ValueError:  # a socket's path, say
            return False
        return any(address in network for network in self._networks)


class Prefixed:
    """
    Outermost middleware of the server: sets the prefix of all links, be requests passed on with it or without.

    Args:
        root_path: the prefix; "" for none. One that a trusted proxy tells (X-Forwarded-Prefix) comes first.
    """

    def __init__(self, app: ASGIApp, root_path: str, proxies: Proxies) -> None:
        self.app = app
        self._root_path = root_path.rstrip("/")
        if self._root_path and not _PREFIX.fullmatch(self._root_path):
            raise SettingsError(f"--root-path is {short(root_path)}, it must be a path such as /lowkiq")
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (prefix := self._told(scope) or self._root_path):
            scope = {**scope, "root_path": prefix}
        await self.app(scope, receive, send)

    def _told(self, scope: Scope) -> str:
        if not self._proxies.has((scope.get("client") or ("",))[0]):
            return ""
        told = Headers(scope=scope).get("x-forwarded-prefix", "").rstrip("/")
        return told if _PREFIX.fullmatch(told) else ""
