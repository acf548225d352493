"""A queue of the original Lowkiq for Ruby, as its nodes leave it in Redis: read in order, and removed when moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import redis
from rubymarshal.classes import RubyString, Symbol
from rubymarshal.reader import loads as load_marshal

#: What becomes of a job that was moved, as long as Ruby's producers still push: only what was read is removed.
#: KEYS 1 its payloads, 2 … sorted sets of ids, then hashes; ARGV 1 id, 2 how many sorted sets, then payloads
REMOVE: Final = """
for i = 3, #ARGV do redis.call('ZREM', KEYS[1], ARGV[i]) end
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for i = 2, #KEYS do redis.call(i <= ARGV[2] + 1 and 'ZREM' or 'HDEL', KEYS[i], ARGV[1]) end
return 1
"""


class Unreadable(ValueError):
    """A payload that JSON can't hold, or that is no payload at all."""


class RubyJob(NamedTuple):
    """A job as it was found, in one of three places."""

    id: str
    #: Scores and payloads, as Ruby has dumped them.
    payloads: list[tuple[float, bytes]]
    at: float
    retry_count: int
    error: str | None
    #: Sorted sets and hashes that have the id.
    zsets: Sequence[str]
    hashes: Sequence[str]
    payloads_key: str


class RubyQueue:
    """
    A queue of the original, version 1.x.

    Args:
        client: replies are bytes.
        name: its queue_name, mostly the name of the Ruby class.
    """

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._redis: Any = client
        self._prefix = f"lowkiq:A:v1:{name}"

    def counts(self) -> tuple[int, int, int]:
        """How many jobs were left in hand by nodes, are queued, and are in the morgue."""
        in_hand = sum(self._redis.hlen(key) for key in self._in_hand_keys())
        return in_hand, self._redis.zcard(self._key(QUEUED)), self._redis.zcard(self._key(DEAD))

    def in_hand(self) -> Iterator[RubyJob]:
        """Jobs that a node had taken when it ended: older than what is queued of their ids."""
        for key in self._in_hand_keys():
            shard = key.rpartition(":")[2]
            retries, errors = (self._key(f"processing:{name}:{shard}") for name in ("ids_with_retry_count", "errors"))
            for id, at in self._redis.hgetall(key).items():
                payloads = self._key("processing:payloads:") + id.decode()
                retry = self._redis.hget(retries, id) or b"-1"
                yield self._job(id, payloads, at, retry, self._redis.hget(errors, id), (), (key, retries, errors))

    def queued(self) -> Iterator[RubyJob]:
        """Queued jobs, in the order in which they are due."""
        retries, errors = self._key("all_ids_scored_by_retry_count"), self._key("errors")
        by_shard = self._keys("ids_scored_by_perform_in:*")  # one of them has the id
        for id, at in self._members(QUEUED):
            payloads = self._key("payloads:") + id.decode()
            zsets = (self._key(QUEUED), retries, self._key("all_ids_lex"), *by_shard)
            retry = self._redis.zscore(retries, id)
            yield self._job(
                id, payloads, at, -1 if retry is None else retry, self._redis.hget(errors, id), zsets, (errors,)
            )

    def morgue(self) -> Iterator[RubyJob]:
        """Jobs in the morgue, in the order in which they got there."""
        errors = self._key("morgue:errors")
        for id, at in self._members(DEAD):
            payloads = self._key("morgue:payloads:") + id.decode()
            zsets = (self._key(DEAD), self._key("morgue:all_ids_lex"))
            yield self._job(id, payloads, at, -1, self._redis.hget(errors, id), zsets, (errors,))

    def remove(self, job: RubyJob) -> None:
        """Removes what was read of a job."""
        keys = [job.payloads_key, *job.zsets, *job.hashes]
        words = [job.id, len(job.zsets), *(payload for _, payload in job.payloads)]
        self._redis.eval(REMOVE, len(keys), *keys, *words)

    def _in_hand_keys(self) -> list[str]:
        return self._keys("processing:ids_with_perform_in:*")

    def _keys(self, pattern: str) -> list[str]:
        return sorted(key.decode() for key in self._redis.scan_iter(self._key(pattern), count=1_000))

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _members(self, name: str) -> list[tuple[bytes, float]]:
        members: list[tuple[bytes, float]] = self._redis.zrange(self._key(name), 0, -1, withscores=True)
        return members

    def _job(
        self, id: bytes, payloads: str, at: Any, retry: Any, error: bytes | None, zsets: Sequence[str], hashes: Any
    ) -> RubyJob:
        found = [(score, payload) for payload, score in self._redis.zrange(payloads, 0, -1, withscores=True)]
        text = error.decode("utf-8", "replace") if error else None
        return RubyJob(id.decode(), found, float(at), int(float(retry)), text, zsets, hashes, payloads)


#: The spelling of the first is the original's.
QUEUED: Final = "all_ids_scored_by_perfrom_in"
DEAD: Final = "morgue:all_ids_scored_by_updated_at"


def read_payload(data: bytes) -> Any:
    """What Ruby's Marshal has dumped, as JSON has it: symbols are texts. Raises Unreadable."""
    try:
        return plain(load_marshal(data))
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def plain(value: Any) -> Any:
    """A value of Ruby's as JSON has it. Raises Unreadable for what it can't hold: say here what yours are to be."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case Symbol():
            return value.name
        case RubyString():
            return str(value)
        case list():
            return [plain(item) for item in value]
        case dict():
            found = {_key_of(key): plain(item) for key, item in value.items()}
            if len(found) < len(value):
                raise Unreadable(f"a hash has the same key as a symbol and as a text: {', '.join(found)}")
            return found
    raise Unreadable(f"{type(value).__name__} {value!r:.60} is nothing that JSON can hold")


def _key_of(key: Any) -> str:
    named = plain(key)
    if not isinstance(named, str):
        raise Unreadable(f"a hash has the key {named!r:.60}: JSON's are texts")
    return named
