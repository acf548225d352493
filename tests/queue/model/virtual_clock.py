"""VirtualClock: the scripts' clock, which a test sets as it likes: it stands still, runs, or steps back."""

from __future__ import annotations

from functools import cache

import pytest
import redis

from lowkiq.queue import scripts

#: Where a script asks for the time, and what it gets in its place: seconds, and the rest in microseconds.
ASKS = "redis.call('TIME')"
ANSWER = """(function(us)
  return {{string.sub(us, 1, -7), tostring(tonumber(string.sub(us, -6)))}}
end)(redis.call('GET', '{}'))"""

#: The key that holds it, the same in all tests: what each had of its own, each would have to load all scripts with.
KEY = "clock-of-the-tests"
#: Where it begins, in microseconds.
BEGINNING = 1_500_000 * 1_000_000


class VirtualClock:
    """
    Takes the place of Redis's TIME in every script that is loaded from here on, until the monkeypatch is undone. A
    client that has loaded its scripts keeps them.
    """

    def __init__(self, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        self._client, self.key = client, KEY.encode()
        monkeypatch.setattr(scripts, "_read", _with_clock(scripts._read))
        self.set(BEGINNING)

    def set(self, now: float) -> None:
        """Microseconds; like Redis's own clock it knows no parts of them."""
        self.now = round(now)
        self._client.set(self.key, self.now)

    def step(self, by: float) -> None:
        self.set(self.now + by)


@cache
def _with_clock(read: scripts.Read) -> scripts.Read:
    """The same for the same, by which loaded scripts are known."""

    def patched(path: str) -> str:
        source = read(path)
        assert not path.endswith("includes/shard.lua") or ASKS in source, "the time is no longer asked for so"
        # Keys expire by the clock of the machine: one that is slow would lose in a second what is still needed.
        return source.replace(ASKS, ANSWER.format(KEY)).replace("'PEXPIRE'", "'EXPIRE'")

    return patched
