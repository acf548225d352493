"""Addresses: connects to a host by name in bounded time, whatever its resolver does, and whichever addresses it has."""

from __future__ import annotations

import math
import os
import socket
import threading
from concurrent.futures import Future, wait
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
#: Seconds after which a resolver is asked anew: its question may be lost, and it waits longer before it repeats it.
ANEW: Final = 2.0
#: Names that are being resolved, by process, since when: a fork has no thread that would.
_resolving: dict[_Name, tuple[Future[_Found], float]] = {}
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
    until = math.inf if seconds is None else clock.monotonic() + seconds
    while True:
        under_way = _under_way(name)
        left = until - clock.monotonic()
        done, _ = wait([under_way], min(max(left, 0.0), ANEW))
        if done:
            return under_way.result()
        if left <= ANEW:
            raise redis.TimeoutError(f"the name {name[1]} was not resolved within {seconds:g} s")


def _under_way(name: _Name) -> Future[_Found]:
    """The last question for a name, which is not older than ANEW."""
    now = clock.monotonic()
    with _lock:
        under_way, since = _resolving.get(name, (None, 0.0))
        if under_way is None or now - since >= ANEW:
            under_way = Future()
            _resolving[name] = under_way, now
            threading.Thread(target=_resolve, args=(name, under_way), daemon=True, name="resolve").start()
        return under_way


def _resolve(name: _Name, result: Future[_Found]) -> None:
    _, host, port, kind = name
    try:
        found = socket.getaddrinfo(host, port, kind, socket.SOCK_STREAM)
    except BaseException as error:  # noqa: BLE001 (it is for whoever waits)
        _forget(name, result)
        result.set_exception(error)
    else:
        _forget(name, result)
        result.set_result(found)


def _forget(name: _Name, result: Future[_Found]) -> None:
    with _lock:
        if _resolving.get(name, (None,))[0] is result:
            del _resolving[name]
