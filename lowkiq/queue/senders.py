"""Senders: number the calls that Redis applies once, however often and however late they arrive (senders.lua)."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

from lowkiq import clock

#: Seconds between two looks at Redis's clock, by which numbers say how long a call may take: other clocks drift.
LOOK: Final = 60.0
#: Seconds that Redis's clock may seem to go back between two looks: as far as a round trip lets us know it.
BLUR: Final = 1.0


class Stamp(NamedTuple):
    """What all tries of one call carry."""

    sender: bytes
    number: int


class Sender:
    """Sends one call at a time to any shard; threads need one each."""

    __slots__ = ("last", "name", "packed")

    def __init__(self, name: bytes) -> None:
        self.name = name
        #: The number of its last call.
        self.last = 0
        #: The name as a command has it.
        self.packed = b"$%d\r\n%b\r\n" % (len(name), name)


class Senders:
    """
    The senders of a process that nobody needs just now, the last one on top: so whoever pushes again what has failed
    does it, mostly, under a later number of the same name, and what is still on its way of the other is refused.
    """

    def __init__(self, command: Callable[..., Any]) -> None:
        self._command = command
        self._begin()
        #: Seconds from our clock to Redis's; until it was looked at, as if it went by this machine's.
        self._ahead = clock.real() - clock.monotonic()
        #: When to look at Redis's clock, at first and again.
        self.look_at = -math.inf

    def _begin(self) -> None:
        self._idle: list[Sender] = []
        self._process = os.getpid()
        self._prefix = b"~" + secrets.token_urlsafe(6).encode()
        self._numbers = count()

    def take(self) -> Sender:
        """A sender for whoever calls, until it is given back."""
        if self._process != os.getpid():  # forked: the names are the parent's
            self._begin()
        try:
            return self._idle.pop()
        except IndexError:
            return Sender(b"%b%d" % (self._prefix, next(self._numbers)))

    def give_back(self, sender: Sender) -> None:
        """Lets others have a sender whose call is over: answered, or given up."""
        if sender.name.startswith(self._prefix):
            self._idle.append(sender)

    def number(self, sender: Sender, until: float) -> int:
        """The number of a sender's next call, which may be applied until then by our clock."""
        sender.last = number = max(sender.last + 1, int((until + self._ahead) * 1e6))
        return number

    def stamp(self, sender: Sender, until: float) -> Stamp:
        """The same with the sender's name."""
        return Stamp(sender.name, self.number(sender, until))

    def once(self, until: float) -> Stamp:
        """That of a call whose sender sends nothing else."""
        return self.stamp(Sender(b"%b%d" % (self._prefix, next(self._numbers))), until)

    def look(self) -> bool:
        """Looks at Redis's clock if it is time to; False if it is not."""
        if is_due := clock.monotonic() >= self.look_at:
            self.learn()
        return is_due

    def learn(self) -> None:
        """Looks at Redis's clock. It is ahead of what it has told: so what may be applied until then is not, later."""
        seconds, micros = self._command("TIME")
        now = clock.monotonic()
        ahead = seconds + micros / 1e6 - now
        if ahead < self._ahead - BLUR:  # it was set back: the numbers of those senders would stay ahead of it
            self._begin()
        self._ahead, self.look_at = ahead, now + LOOK
