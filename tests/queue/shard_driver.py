"""ShardDriver: one shard as the tests see it. It calls the scripts, and reads the keys without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from lowkiq import Lowkiq
from lowkiq.admin.actions import Actions
from lowkiq.job import KEPT_BYTES, EncodedJob, Job
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Spoiled
from lowkiq.queue.push import push_call
from lowkiq.queue.shard import Exhausted, Failure, Held, Outcome, Owned, Released, Settled, Shard, renew
from lowkiq.shared_page import DeadNode

#: A due time long past, and one that no test lives to see.
PAST, FUTURE = 1_000_000.0, 4_000_000_000.0

Payloads = dict[bytes, float]


class Queued(NamedTuple):
    payloads: Payloads
    perform_in: float
    retry_count: int = -1
    error: str | None = None
    #: It is parked behind a run of its own id; perform_in is when it was due.
    waits: bool = False


class Claimed(NamedTuple):
    payloads: Payloads
    perform_in: float
    retry_count: int = -1


class Dead(NamedTuple):
    payloads: Payloads
    error: str


class Lease:
    """What a node does with a shard that it owns."""

    def __init__(self, driver: ShardDriver, node: str, epoch: str) -> None:
        self.driver, self.node, self.epoch = driver, node, epoch
        self.number = 0

    def try_claim(
        self, limit: int = 1000, max_payloads: int = 1000, number: int | None = None, known: Sequence[int] = ()
    ) -> Claim:
        number = self.number + 1 if number is None else number
        call = self.driver.shard.claim(
            self.node, self.epoch, number, limit, max_payloads, self.driver.load, known=known
        )
        claim = self.driver.caller.run(call)
        self.number = number
        return claim

    def claim(self, limit: int = 1000, max_payloads: int = 1000) -> list[Job]:
        return self.try_claim(limit, max_payloads).jobs

    def claim_beside(self, limit: int = 1000, max_payloads: int = 1000) -> list[Job]:
        """A claim beside all that were made before, which are in hand still."""
        return self.try_claim(limit, max_payloads, known=range(1, self.number + 1)).jobs

    def settle(self, number: int | None = None, **outcome: Any) -> Settled:
        """Ends jobs of the last claim, or of the one with that number."""
        number = self.number if number is None else number
        return self.driver.caller.run(self.driver.shard.settle(self.node, self.epoch, number, Outcome(**outcome)))

    def ack(self, *ids: str) -> Settled:
        return self.settle(acked=ids)

    def fail(self, id: str, retry_count: int = 0, delay: float = 60.0, error: str = "boom") -> Settled:
        return self.settle(failed=[Failure(id, retry_count, delay, error)])

    def exhaust(self, id: str, error: str = "exhausted") -> Settled:
        return self.settle(exhausted=[Exhausted(id, error)])

    def spoil(self, id: str, payload: bytes, error: str = "can't be read", **outcome: Any) -> Settled:
        return self.settle(spoiled=[Spoiled(id, payload, error)], **outcome)

    def release(self, what: Literal["claim", "lease"] = "lease", number: int | None = None) -> Released:
        number = self.number if number is None else number
        return self.driver.caller.run(self.driver.shard.release(self.node, self.epoch, number, what))

    def isolate(self, id: str, *, is_alone: bool = True, number: int | None = None) -> bool:
        number = self.number if number is None else number
        call = self.driver.shard.isolate(self.node, self.epoch, number, id, is_alone=is_alone)
        return self.driver.caller.run(call)

    def abandon(self) -> int:
        return self.driver.caller.run(self.driver.shard.abandon(self.node, self.epoch))

    def renew(self, ttl: float = 60.0) -> bool:
        return bool(self.driver.caller.run(renew([self.driver.shard], self.node, [self.epoch], ttl))[0])


class ShardDriver:
    """One shard: what producers, operators and nodes do with it, and what it holds."""

    def __init__(self, app: Lowkiq, queue: str = "q", index: int = 0, shards_count: int = 1) -> None:
        self.app, self.caller = app, app.caller
        self.redis = app.redis()
        self.shard = Shard(app.settings.namespace, queue, index, shards_count)
        self.prefix = self.shard.prefix.encode()
        self.load: Any = bytes

    def push(
        self,
        id: str,
        payload: bytes = b"p",
        score: float | str = "",
        perform_in: float | str = "",
    ) -> tuple[int, int]:
        return self.push_all((id, payload, score, perform_in))

    def push_all(self, *rows: Sequence[Any]) -> tuple[int, int]:
        """Pushes rows of id, payload, score, perform_in in one call; what is left out has its default."""
        jobs = [_encoded(*row) for row in rows]
        return self.caller.run(push_call(self.shard, jobs))

    def push_payloads(self, id: str, count: int, first: int = 0) -> None:
        """Pushes payloads b"0", b"1" … with scores 0, 1 …"""
        self.push_all(*((id, b"%d" % n, float(n), PAST) for n in range(first, first + count)))

    def try_acquire(
        self,
        node: str,
        ttl: float = 60.0,
        max_crashes: int = 3,
        dead: Sequence[str | DeadNode] = (),
        is_foster: bool = False,
    ) -> Owned | Held:
        known = [DeadNode(node) if isinstance(node, str) else node for node in dead]
        return self.caller.run(self.shard.acquire(node, ttl, max_crashes, known, is_foster=is_foster))

    def lease(
        self, node: str = "a", ttl: float = 60.0, max_crashes: int = 3, dead: Sequence[str | DeadNode] = ()
    ) -> Lease:
        """The lease of a shard that is free, or whose holder is named as dead."""
        owned = self.try_acquire(node, ttl, max_crashes, dead)
        assert isinstance(owned, Owned), owned
        return Lease(self, node, owned.epoch)

    @property
    def actions(self) -> Actions:
        return Actions(self.caller, [self.shard], max_id_bytes=self.app.settings.max_id_bytes)

    def call(self, script: str, *arguments: Any) -> Any:
        """The bare reply of a script; what operators do names the layout first."""
        if script in {"bury", "drop", "perform_now", "revive"}:
            arguments = (self.shard.layout, *arguments)
        return self.caller.run(Call(script, [self.shard.prefix], arguments, lambda reply: reply))

    # ── what it holds, read key by key ──────────────────────────────────────────────────────────────────────────────

    def key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    def queued(self) -> dict[str, Queued]:
        due, retries = self._index("due"), self._index("retries")
        errors, behind = self._hash("errors"), self._hash("behind")
        payloads = self._payloads("payloads")
        assert behind.keys() == {id for id, score in due.items() if score == math.inf}, "parked is what is due at inf"
        assert behind.keys() <= self.claimed().keys(), "what is parked waits behind a claim that holds its id"
        due |= {id: float(own) for id, own in behind.items()}
        assert due.keys() == payloads.keys()
        assert retries.keys() <= due.keys()
        assert not any(is_compact(self._hash("payloads")[id]) for id in retries), "what has failed is in full"
        return {
            id: Queued(
                payloads[id],
                due[id],
                int(retries.get(id, -1)),
                errors[id].decode() if id in errors else None,
                id in behind,
            )
            for id in due
        }

    def claimed(self) -> dict[str, Claimed]:
        """The jobs of all claims in hand."""
        claims = self.claims().values()
        ids = [id for claim in claims for id in claim]
        assert len(ids) == len(set(ids)), f"I4: an id is in two claims: {ids}"
        return {id: job for claim in claims for id, job in claim.items()}

    def claims(self) -> dict[int, dict[str, Claimed]]:
        """The claims in hand by number, the oldest first."""
        owner, asides, several = self._hash("owner"), self._hash("asides"), self._several("claim")
        assert {f"aside:{number}" for number in asides} == {name for name in self.names() if name.startswith("aside:")}
        claims = {int(number): self._claim(f"aside:{number}", last_due, several) for number, last_due in asides.items()}
        newest = self._claim("claim", owner.get("last_due"), several)
        assert not several, f"zsets that no record names: {several}"
        if newest:
            assert "claim" in owner, "a claim without a number"
            assert int(owner["claim"]) > max(claims, default=0), "a claim set aside is older than the newest"
            claims[int(owner["claim"])] = newest
        return dict(sorted(claims.items()))

    def morgue(self) -> dict[str, Dead]:
        index, payloads, errors = self._index("morgue"), self._payloads("morgue:payloads"), self._hash("morgue:errors")
        assert index.keys() == payloads.keys() == errors.keys()
        return {id: Dead(payloads[id], errors[id].decode()) for id in index}

    def crashes(self) -> dict[str, int]:
        return self.deaths("crashes")

    def deaths(self, name: str) -> dict[str, int]:
        return {id: int(count) for id, count in self._hash(name).items()}

    def errors(self) -> dict[str, str]:
        return {id: error.decode() for id, error in self._hash("errors").items()}

    def meta(self, name: str) -> int:
        return int(self.redis.hget(self.key("meta"), name) or 0)

    def owner(self, name: str) -> str | None:
        value = self.redis.hget(self.key("owner"), name)
        return None if value is None else value.decode()

    def now(self) -> float:
        seconds, microseconds = self.redis.time()
        return seconds + microseconds / 1e6

    def names(self) -> set[str]:
        """The keys that there are, without the prefix."""
        return {key.removeprefix(self.prefix).decode(errors="replace") for key in self._keys()}

    def dump(self) -> dict[bytes, Any]:
        """Everything in the namespace, to be compared."""
        pattern = f"{self.app.settings.namespace}:*"
        return {key: self._value(key) for key in self.redis.scan_iter(match=pattern, count=1000)}

    def jobs(self) -> dict[bytes, Any]:
        """The same without the mark that arms the doorbell: arming it once more only wakes a node in vain."""
        dump = self.dump()
        dump.get(self.key("owner"), {}).pop(b"waiting", None)
        return dump

    def _keys(self) -> list[bytes]:
        # The prefix holds nothing that a glob would read, its braces included.
        return list(self.redis.scan_iter(match=self.prefix + b"*", count=1000))

    def _value(self, key: bytes) -> Any:
        match self.redis.type(key):
            case b"hash":
                return self.redis.hgetall(key)
            case b"zset":
                return self.redis.zrange(key, 0, -1, withscores=True)
            case b"list":
                return self.redis.lrange(key, 0, -1)
            case b"string":
                return self.redis.get(key)
            case kind:
                raise AssertionError(f"{key!r} is a {kind!r}")

    def _index(self, name: str) -> dict[str, float]:
        rows: Any = self.redis.zrange(self.key(name), 0, -1, withscores=True)
        return {id.decode(): score for id, score in rows}

    def _hash(self, name: str) -> dict[str, bytes]:
        rows: Any = self.redis.hgetall(self.key(name))
        return {id.decode(): value for id, value in rows.items()}

    def _claim(self, name: str, last_due: bytes | None, several: dict[str, Payloads]) -> dict[str, Claimed]:
        words: Any = self.redis.lrange(self.key(name), 0, -1)
        ids = [id.decode() for id in words[::2]]
        assert len(ids) == len(set(ids)), f"an id is claimed twice: {ids}"
        found = {}
        for id, record in zip(ids, words[1::2], strict=True):
            if is_compact(record):
                assert last_due is not None, "nothing tells when a job is due whose record is compact"
                due_at = compact_us(record, int(last_due)) / 1e6
                found[id] = Claimed({record[4:]: due_at}, due_at, -1)
                continue
            perform_in, retry_count, held = record.split(b":", 2)
            found[id] = Claimed(self._held(held, several, id), float(perform_in), int(float(retry_count)))
        return found

    def _several(self, name: str) -> dict[str, Payloads]:
        start = self.key(name) + b":"
        several = {}
        for key in self._keys():
            if key.startswith(start):
                rows: Any = self.redis.zrange(key, 0, -1, withscores=True)
                several[key.removeprefix(start).decode()] = dict(rows)
        return several

    def _payloads(self, name: str) -> dict[str, Payloads]:
        several = self._several(name)
        due = self._index("due") if name == "payloads" else {}
        payloads = {id: self._held(held, several, id, due.get(id)) for id, held in self._hash(name).items()}
        assert not several, f"zsets that no record names: {several}"
        return payloads

    @staticmethod
    def _held(held: bytes, several: dict[str, Payloads], id: str, due: float | None = None) -> Payloads:
        if held == b"*":
            assert id in several, f"the payloads of {id} are gone"
            payloads = several.pop(id)
            assert len(payloads) > 1, "one payload belongs into the hash"
            return payloads
        if is_compact(held):
            assert due is not None, "only in the queue a record is compact"
            assert due != math.inf, "the record of a parked job is in full"
            assert compact_us(held, round(due * 1e6)) == round(due * 1e6), "such a job is due at its score"
            return {held[4:]: due}
        score, payload = held.split(b":", 1)
        return {payload: float(score)}


def is_compact(record: bytes) -> bool:
    """Whether it begins with the last bits of its time (payloads.lua)."""
    return record[0] >= 128


def compact_us(record: bytes, last: int) -> int:
    """When a job with a compact record is due, in microseconds: `last`, or not long before."""
    return last - (last - int.from_bytes(record[:4], "big")) % 2**31


def _encoded(id: str, payload: bytes = b"p", score: float | str = "", perform_in: float | str = "") -> EncodedJob:
    return EncodedJob(
        id.encode("utf-8", KEPT_BYTES), payload, score, perform_in if perform_in == "" else f"{perform_in:.6f}"
    )
