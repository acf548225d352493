"""Addresses: connects to a host by name in bounded time, whatever its resolver does, and whichever addresses it has."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Future
from typing import Any, Final

import redis

from lowkiq import clock

#: Seconds of silence after which a connection is probed, between probes, and how many have no answer until it is
#: closed. The systems' own times are hours; redis-py before 8 leaves it at them.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
#: The same as redis-py takes them: not all systems have all.
KEEPALIVE_OPTIONS: Final = {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}

_Found = list[tuple[Any, ...]]
_Name = tuple[int, str, int, int]

_lock = threading.Lock()
#: Names that are being resolved, by process: a fork has no thread that would.
_resolving: dict[_Name, Future[_Found]] = {}
#: The address by which a name was reached at last: it is tried first.
_reached: dict[_Name, Any] = {}


class ByAddress(redis.Connection):
    """Each of a name's addresses has a share of socket_connect_timeout, in which the name is resolved as well."""

    def _connect(self) -> Any:
        seconds = self.socket_connect_timeout
        until = None if seconds is None else clock.monotonic() + seconds
        name = (os.getpid(), self.host, self.port, self.socket_type)
        found = sorted(_resolved(name, seconds), key=lambda one: one[4] != _reached.get(name))
        error: Exception = OSError(f"{self.host} has no address")
        for number, (family, kind, protocol, _, address) in enumerate(found):
            share = None if until is None else max(0.001, (until - clock.monotonic()) / (len(found) - number))
            try:
                made = self._connected(socket.socket(family, kind, protocol), address, share)
            except OSError as refusal:
                error = refusal
            else:
                _reached[name] = address
                return made
        raise error

    def _connected(self, made: socket.socket, address: Any, seconds: float | None) -> socket.socket:
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.socket_keepalive:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in self.socket_keepalive_options.items():
                    made.setsockopt(socket.IPPROTO_TCP, option, value)
            made.settimeout(seconds)
            made.connect(address)
            made.settimeout(self.socket_timeout)
        except BaseException:
            made.close()
            raise
        return made


def _resolved(name: _Name, seconds: float | None) -> _Found:
    """
    The addresses of a name. A thread asks the resolver, whose patience is its own, and is left alone when there is no
    time left; whoever asks meanwhile waits for the same one. Raises redis.TimeoutError.
    """
    with _lock:
        if (under_way := _resolving.get(name)) is None:
            under_way = _resolving[name] = Future()
            threading.Thread(target=_resolve, args=(name, under_way), daemon=True, name="resolve").start()
    try:
        return under_way.result(seconds)
    except TimeoutError as error:
        if under_way.done():
            raise
        raise redis.TimeoutError(f"the name {name[1]} was not resolved within {seconds:g} s") from error


def _resolve(name: _Name, result: Future[_Found]) -> None:
    _, host, port, kind = name
    try:
        found = socket.getaddrinfo(host, port, kind, socket.SOCK_STREAM)
    except BaseException as error:  # noqa: BLE001 (it is for whoever waits)
        _resolving.pop(name, None)
        result.set_exception(error)
    else:
        _resolving.pop(name, None)
        result.set_result(found)
