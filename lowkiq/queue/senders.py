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

    __slots__ = ("_idle", "last", "name", "packed")

    def __init__(self, name: bytes, idle: list[Sender] | None = None) -> None:
        self.name = name
        #: Where others find it. Nobody looks there any more after a fork, or when Redis's clock was set back.
        self._idle = [] if idle is None else idle
        #: The number of its last call.
        self.last = 0
        #: The name as a command has it.
        self.packed = b"$%d\r\n%b\r\n" % (len(name), name)

    def give_back(self) -> None:
        """Lets others have it: its call is over, answered or given up."""
        self._idle.append(self)


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
            return self._new()

    def _new(self) -> Sender:
        return Sender(b"%b%d" % (self._prefix, next(self._numbers)), self._idle)

    def number(self, sender: Sender, until: float) -> int:
        """The number of a sender's next call, which may be applied until then by our clock."""
        number = int((until + self._ahead) * 1e6)
        if number <= sender.last:
            number = sender.last + 1
        sender.last = number
        return number

    def stamp(self, sender: Sender, until: float) -> Stamp:
        """The same with the sender's name."""
        return Stamp(sender.name, self.number(sender, until))

    def once(self, until: float) -> Stamp:
        """That of a call whose sender sends nothing else."""
        return self.stamp(self._new(), until)

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
