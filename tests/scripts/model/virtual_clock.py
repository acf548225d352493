"""VirtualClock: the scripts' clock, which a test sets as it likes: it stands still, runs, or steps back."""

from __future__ import annotations

import re

import pytest
import redis

from lowkiq.store import scripts

_NOW = re.compile(r"local function now_us\(\).*?^end$", re.DOTALL | re.MULTILINE)

#: Where it begins, in microseconds.
BEGINNING = 1_000_000 * 1_000_000


class VirtualClock:
    """
    Takes the place of Redis's TIME in every script that is loaded from here on, until the monkeypatch is undone. A
    client that has loaded its scripts keeps them.
    """

    def __init__(self, client: redis.Redis, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._client, self.key = client, key.encode()
        read = scripts._read

        def patched(path: str) -> str:
            source = read(path)
            if path != "includes/clock.lua":
                return source
            source, count = _NOW.subn(
                f"local function now_us() return tonumber(redis.call('GET', '{key}')) end", source
            )
            assert count == 1, "now_us is no longer where it was"
            return source

        monkeypatch.setattr(scripts, "_read", patched)
        self.set(BEGINNING)

    def set(self, now: int) -> None:
        self.now = now
        self._client.set(self.key, now)

    def step(self, by: int) -> None:
        self.set(self.now + by)
