"""Server: uvicorn in this process, until TERM or INT. Used by `lowkiq web` and by the supervisor's child."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from lowkiq.app import Lowkiq
from lowkiq.environment import (
    MADE_UP,
    WEB_ROOT_PATH,
    Address,
    Credentials,
    check_address,
    find_web_hosts,
    find_web_proxies,
    link_to_sign_in,
)
from lowkiq.errors import LowkiqError
from lowkiq.log import get_logger
from lowkiq.web.application import make_web, shared_text
from lowkiq.web.connections import Connection, Limit
from lowkiq.web.security.access import Access
from lowkiq.web.security.proxies import Prefixed, Proxies

logger = get_logger()

#: Bytes of a request's line and headers: room for an id of 512 bytes, escaped, and a pattern.
MOST_HEADER_BYTES: Final = 32 << 10
#: Seconds that requests get to end when the server is asked to stop.
GRACE: Final = 2
#: uvicorn ticks ten times a second; the state is reported once.
TICKS_A_REPORT: Final = 10
#: Bytes of an answer that the system keeps of a connection until they are read: those that nobody reads cost no more.
SEND_BUFFER: Final = 128 << 10
#: Connections that wait to be taken.
BACKLOG: Final = 128


class CannotListen(LowkiqError):
    """The address is taken, or not of this machine."""


def serve(
    app: Lowkiq,
    address: Address,
    *,
    read_only: bool = False,
    payloads: bool = True,
    no_auth: bool = False,
    root_path: str | None = None,
    on_state: Callable[[str], object] | None = None,
) -> int:
    """
    Serves the view until TERM or INT, and returns the exit code, 0. Credentials come from the environment.

    Args:
        root_path: the path under which a proxy in front has it; None: as LOWKIQ_WEB_ROOT_PATH says.
        on_state: called with "ready" once it listens and then about every second, with "draining" when it stops.

    Raises:
        SettingsError: it would be open to everybody, or the credentials can't be used.
        CannotListen: the address is taken, or not of this machine.
    """
    credentials = Credentials.find(os.environ)
    check_address(address, credentials, no_auth=no_auth)
    if no_auth and address.is_public:
        logger.warning("web_open_to_all", address=str(address))
    handed, hosts = os.environ.get(MADE_UP, ""), find_web_hosts(os.environ)
    access = Access(credentials, no_auth=no_auth, made_token=handed, hosts=hosts, shared=shared_text(app))
    proxies = Proxies(*find_web_proxies(os.environ))
    prefix = os.environ.get(WEB_ROOT_PATH, "") if root_path is None else root_path
    web = Prefixed(make_web(app, access, read_only=read_only, payloads=payloads, proxies=proxies), prefix, proxies)
    # Who has handed the token over shows the link.
    token = access.credentials.token if access.is_made and not handed else None
    with _listen(address) as listener, _logs_of_uvicorn():
        asyncio.run(_Server(_config(Limit(web)), on_state or (lambda _: None), token).serve([listener]))
    return 0


def _config(web: ASGIApp) -> uvicorn.Config:
    connection: Any = partial(Connection, {})
    return uvicorn.Config(
        web,
        loop="asyncio",
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Whom we trust is decided by the connection alone. What a proxy says of the scheme is not needed: links have
        # none, and of TLS in front of us the browser's Origin tells.
        proxy_headers=False,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=GRACE,
    )


class _Server(uvicorn.Server):
    """uvicorn that reports its state, and exits with 0 after a TERM."""

    def __init__(self, config: uvicorn.Config, on_state: Callable[[str], object], token: str | None) -> None:
        super().__init__(config)
        self._on_state = on_state
        self._token = token

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            logger.info("web_ready", url=f"http://{Address(host, port)}/")
            if self._token:
                advice = "open it to sign in; to have a token of your own, set LOWKIQ_WEB_TOKEN"
                logger.warning("web_link", url=link_to_sign_in(Address(host, port), self._token), advice=advice)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_state("draining")
        logger.info("web_stopping")
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # As uvicorn does it, without raising the signal again at the end, which would kill us with it.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def on_tick(self, counter: int) -> bool:
        # Not uvicorn's own callback: it goes by the real time, and would be silent for as long as that is set back.
        if counter % TICKS_A_REPORT == 0:
            self._on_state("ready")
        return await super().on_tick(counter)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    both = address.host == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server(
            (address.host, address.port), family=family, dualstack_ipv6=both, backlog=BACKLOG
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotListen(f"{address} is taken: another process listens there. Choose another address") from None
        raise CannotListen(f"can't listen at {address}: {error.strerror}") from error
    # What its connections inherit. asyncio sees to the second only where the socket's protocol is named, which none of
    # create_server's is: a body would wait 40 ms for its head to be acknowledged.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@contextmanager
def _logs_of_uvicorn() -> Iterator[None]:
    """Sends warnings and errors of uvicorn to our log, and drops the rest."""
    log, handler = logging.getLogger("uvicorn.error"), _ToStructlog()
    before = log.level, log.propagate
    log.setLevel(logging.WARNING)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # Formatted here: structlog's own tracebacks show local variables, and among them are headers with credentials.
        tell = logger.error if record.levelno >= logging.ERROR else logger.warning
        tell("web_server", message=self.format(record))
