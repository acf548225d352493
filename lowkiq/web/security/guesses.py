"""
Guesses: slows down who tries credentials that are wrong, also many at a time.

A guess is let in, or told to come back, before it is compared: else its answer would tell what the delay is to hide.
That is of passwords. A token that was made up is nobody's guess, and always let in: else whoever has wrong ones sent
from its owner's address, as any web page in its browser can, would keep it out.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from starlette.exceptions import HTTPException

from lowkiq import clock
from lowkiq.log import get_logger

logger = get_logger()

#: Wrong guesses that are being answered at a time: of an address, and in all.
MOST_OF_AN_ADDRESS, MOST_IN_ALL = 3, 50
#: Seconds by which the answer to a wrong guess is delayed, at least and at most.
SHORTEST_DELAY, LONGEST_DELAY = 0.2, 2.0
#: Seconds for which a wrong guess is remembered, and how many are: with so many the delay is the longest.
REMEMBERED, FAILURES_KEPT = 60.0, 20
#: Credentials in headers that were right, which are no guesses any more.
KNOWN_KEPT: Final = 1_000


class Guesses:
    """
    Compares credentials, as many at a time as it allows. Nothing is kept of addresses but of the wrong guesses that are
    being answered, and of the last ones: an address that has made none is never told to come back.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
        self._sleep = sleep
        self._answering: Counter[str] = Counter()
        #: When and whence the last wrong ones came.
        self._failures: deque[tuple[float, str]] = deque(maxlen=FAILURES_KEPT)
        self._known: dict[bytes, None] = {}

    async def judge(
        self, client: str | None, text: str, is_right: Callable[[], bool], *, is_made: bool = False
    ) -> bool:
        """
        True for right credentials, at once; False for wrong ones, after a while. `text` is what was given, if a program
        gives it again and again, else "". `is_made`: they were made up.

        Raises:
            HTTPException: 429, too many wrong ones of this address are being answered.
        """
        address, key = block_of(client), hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if (is_made or (text and key in self._known)) and is_right():
            return True
        self._admit(address)
        if is_right():
            if text:
                self._known[key] = None
                for oldest in list(self._known)[:-KNOWN_KEPT]:
                    del self._known[oldest]
            return True
        logger.warning("web_refused", client=client)
        self._answering[address] += 1
        try:
            await self._sleep(self._delay(address))
        finally:
            self._answering[address] -= 1
            if not self._answering[address]:
                del self._answering[address]
        return False

    def _admit(self, address: str) -> None:
        of_it = self._answering.get(address, 0)
        is_new = not of_it and all(whence != address for _, whence in self._failures)
        if of_it < MOST_OF_AN_ADDRESS and (is_new or self._answering.total() < MOST_IN_ALL):
            return
        raise HTTPException(
            429,
            "too many wrong tokens or passwords have come from your address: wait a moment and try again",
            {"Retry-After": str(round(LONGEST_DELAY))},
        )

    def _delay(self, address: str) -> float:
        """Grows with the failures of the last minute, whoever they came from."""
        now = clock.monotonic()
        self._failures.append((now, address))
        recent = sum(1 for at, _ in self._failures if at > now - REMEMBERED)
        return min(SHORTEST_DELAY * recent, LONGEST_DELAY)


def block_of(client: str | None) -> str:
    """The address that somebody has for sure: of IPv6 the network of 64 bits, in which any number are theirs."""
    try:
        ip = ipaddress.ip_address(client or "")
    except ValueError:
        return client or ""
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))
    return str(ip)
