"""
A copy of a tree of files in Redis, and what has happened to it. Knows nothing of Lowkiq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import redis


@dataclass(frozen=True)
class Counts:
    """Changes that the copy has seen so far."""

    applied: int = 0
    replays: int = 0
    out_of_order: int = 0


class Copy:
    """The copy of the tree in Redis. A change is applied once, however often it is delivered."""

    #: Bitmap of the seqs applied, hash name → highest seq, hash name → blob, and hash of what Counts has.
    #: The braces make a Cluster keep them together.
    KEYS = SEEN, NEWEST, TREE, COUNTS = tuple(
        f"{{tree_mirror}}:{part}" for part in ("seen", "newest", "tree", "counts")
    )

    #: A process may die between applying a batch and acknowledging it. That the copy and the note of what it has seen
    #: change together, in one script, is what lets the next delivery be told from a change out of order. A change
    #: that is out of order is applied all the same, so that the tree shows the damage too.
    APPLY = """
        -- KEYS  seen, newest, tree, counts
        -- ARGV  (name, seq, blob or '' for a deletion)...
        local applied, replays, out_of_order = 0, 0, 0
        for i = 1, #ARGV, 3 do
          local name, seq, blob = ARGV[i], ARGV[i + 1], ARGV[i + 2]
          if redis.call('SETBIT', KEYS[1], seq, 1) == 1 then
            replays = replays + 1
          else
            applied = applied + 1
            if tonumber(seq) < tonumber(redis.call('HGET', KEYS[2], name) or '0') then
              out_of_order = out_of_order + 1
            else
              redis.call('HSET', KEYS[2], name, seq)
            end
            if blob == '' then
              redis.call('HDEL', KEYS[3], name)
            else
              redis.call('HSET', KEYS[3], name, blob)
            end
          end
        end
        redis.call('HINCRBY', KEYS[4], 'applied', applied)
        redis.call('HINCRBY', KEYS[4], 'replays', replays)
        redis.call('HINCRBY', KEYS[4], 'out_of_order', out_of_order)
        """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def apply(self, payloads_by_id: dict[str, list[Any]]) -> None:
        """Apply each name's changes in the order given."""
        changes = [
            field
            for name, payloads in payloads_by_id.items()
            for payload in payloads
            for field in (name, payload["seq"], payload["blob"] or "")
        ]
        self._client.eval(self.APPLY, len(self.KEYS), *self.KEYS, *changes)

    def tree(self) -> dict[str, str]:
        """name → blob."""
        return self._read(self.TREE)

    def counts(self) -> Counts:
        """Counts so far."""
        return Counts(**{name: int(value) for name, value in self._read(self.COUNTS).items()})

    def forget(self) -> None:
        """Start over, with an empty copy."""
        self._client.unlink(*self.KEYS)

    def _read(self, key: str) -> dict[str, str]:
        pairs = cast("dict[bytes, bytes]", self._client.hgetall(key))
        return {name.decode(): value.decode() for name, value in pairs.items()}
