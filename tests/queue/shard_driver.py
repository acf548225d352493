"""ShardDriver: one shard as the tests see it. It calls the scripts, and reads the keys without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lowkiq import Lowkiq
from lowkiq.admin.jobs.actions import Actions
from lowkiq.job import KEPT_BYTES, EncodedJob, Job
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Spoiled
from lowkiq.queue.keys import Layout
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.senders import Stamp
from lowkiq.queue.shard import (
    Exhausted,
    Failure,
    Held,
    Outcome,
    Owned,
    Released,
    Restored,
    Settled,
    Shard,
    renew,
    renew_away,
)  # fmt: skip
from lowkiq.shared_page import DeadNode
from lowkiq.testing.model.shard_state import ClaimName
from tests.queue.look import LOOK, Claimed, Dead, Look, Queued
from tests.queue.stamps import NEVER_LATE

#: A due time long past, and one that no test lives to see.
PAST, FUTURE = 1_100_000_000.0, 4_000_000_000.0


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
            self.node, self.epoch, number, limit, max_payloads, self.driver.load, known=known,
            check_id=self.driver.check_id,
        )  # fmt: skip
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

    def leave(self, *running: int, ttl: float = 60.0) -> Released:
        """Releases the shard while these claims run on; or the last one does."""
        away = running or (self.number,)
        call = self.driver.shard.release(self.node, self.epoch, self.number, "lease", ttl, away)
        return self.driver.caller.run(call)

    def renew_away(self, number: int | None = None, ttl: float = 60.0) -> int | bytes:
        number = self.number if number is None else number
        return self.driver.caller.run(renew_away([(self.driver.shard, self.epoch, number)], self.node, ttl))[0]

    def restore_away(self, dead: Sequence[str | DeadNode] = (), max_crashes: int = 3) -> Restored:
        known = [DeadNode(node) if isinstance(node, str) else node for node in dead]
        return self.driver.caller.run(self.driver.shard.restore_away(self.node, self.epoch, max_crashes, known))

    def isolate(self, id: str, *, is_alone: bool = True, number: int | None = None) -> bool:
        number = self.number if number is None else number
        call = self.driver.shard.isolate(self.node, self.epoch, number, id, is_alone=is_alone)
        return self.driver.caller.run(call)

    def checkpoint(self, id: str, value: bytes, number: int | None = None) -> bool:
        number = self.number if number is None else number
        return self.driver.caller.run(self.driver.shard.checkpoint(self.node, self.epoch, number, id, value))

    def look_at_parked(self, at: bytes = b"0") -> bytes:
        return self.driver.caller.run(self.driver.shard.look_at_parked(self.node, self.epoch, at))

    def cancels(self, number: int) -> list[str]:
        return self.driver.caller.run(self.driver.shard.cancels(self.epoch, number))

    def abandon(self, number: int | None = None) -> int:
        return self.driver.caller.run(self.driver.shard.abandon(self.node, self.epoch, number))

    def renew(self, ttl: float = 60.0) -> bool:
        return bool(self.driver.caller.run(renew([self.driver.shard], self.node, [self.epoch], ttl))[0])


class ShardDriver:
    """One shard: what producers, operators and nodes do with it, and what it holds."""

    def __init__(self, app: Lowkiq, queue: str = "q", index: int = 0, shards_count: int | Layout = 1) -> None:
        self.app, self.caller = app, app.caller
        self.redis = app.redis()
        self.shard = Shard(app.settings.namespace, queue, index, shards_count)
        self.prefix = self.shard.prefix.encode()
        self.load: Any = bytes
        self.check_id: Any = None
        self.number = NEVER_LATE

    def push(
        self,
        id: str,
        payload: bytes = b"p",
        score: float | str = "",
        perform_in: float | str = "",
        tags: str = "",
        tenant: str = "",
    ) -> tuple[int, int]:
        return self.push_all((id, payload, score, perform_in, tags, tenant))

    def push_all(self, *rows: Sequence[Any]) -> tuple[int, int]:
        """
        Pushes rows of id, payload, score, perform_in, tags, tenant, fewer in one call; those left out have defaults.
        """
        jobs = [_encoded(*row) for row in rows]
        return self.caller.run(push_call(self.shard, jobs, self.stamp()))

    def stamp(self) -> Stamp:
        """That of this driver's next call, which never comes too late."""
        self.number += 1
        return Stamp(self.sender, self.number)

    @property
    def sender(self) -> bytes:
        return b"~driver-%d" % id(self)

    def become_known(self) -> None:
        """As if it had pushed before: what a sender pushes first is not handed over."""
        self.redis.hset(self.key("meta"), self.sender, 0)

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

    def copy(self) -> dict[str, tuple[bytes, int]]:
        """All that Redis has of it, as a replica would."""
        keys = [key.decode() for key in self.redis.scan_iter(self.key("*"), count=1000)]
        return {key: (self.redis.dump(key) or b"", max(self.redis.pttl(key), 0)) for key in keys}

    def restore(self, copy: Mapping[str, tuple[bytes, int]]) -> None:
        """Has Redis have that again, and nothing that came later."""
        for key in self.copy():
            self.redis.delete(key)
        for key, (value, ttl) in copy.items():
            self.redis.restore(key, ttl, value)

    @property
    def actions(self) -> Actions:
        return Actions(self.caller, [self.shard], max_id_bytes=self.app.settings.max_id_bytes)

    def call(self, script: str, *arguments: Any) -> Any:
        """The bare reply of a script; what operators do names the layout first."""
        if script in {"bury", "drop", "perform_now", "revive"}:
            arguments = (self.shard.layout, *arguments)
        return self.caller.run(Call(script, [self.shard.prefix], arguments, lambda reply: reply))

    # ── what it holds ───────────────────────────────────────────────────────────────────────────────────────────────

    def key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    def look(self, beside: str = "") -> Look:
        """Everything it holds at one moment: a node may be at work meanwhile, and what is compared must agree."""
        keys, names = self.redis.eval(LOOK, 1, self.prefix, beside)  # type: ignore[misc]
        return Look({name.decode(errors="replace"): value for name, *value in keys}, names)

    def queued(self) -> dict[str, Queued]:
        return self.look().queued()

    def claimed(self) -> dict[str, Claimed]:
        return self.look().claimed()

    def claims(self) -> dict[ClaimName, dict[str, Claimed]]:
        """The claims in hand by number, the oldest first; before them those that are away."""
        return self.look().claims()

    def morgue(self) -> dict[str, Dead]:
        return self.look().morgue()

    def crashes(self) -> dict[str, int]:
        return self.look().deaths("crashes")

    def errors(self) -> dict[str, str]:
        return self.look().errors()

    def meta(self, name: str) -> int:
        return int(self.redis.hget(self.key("meta"), name) or 0)

    def owner(self, name: str) -> str | None:
        value = self.redis.hget(self.key("owner"), name)
        return None if value is None else value.decode()

    def now(self) -> float:
        seconds, microseconds = self.redis.time()
        return seconds + microseconds / 1e6

    def names(self) -> set[str]:
        """The keys that there are, without the prefix, and without that which remembers people's deeds for a while."""
        return set(self.look().keys) - {"deeds"}

    def dump(self) -> dict[bytes, Any]:
        """Everything in the namespace, to be compared, but for what is remembered of people's deeds."""
        keys = self.redis.scan_iter(match=f"{self.app.settings.namespace}:*", count=1000)
        return {key: self._value(key) for key in keys if not key.endswith(b":deeds")}

    def jobs(self) -> dict[bytes, Any]:
        """
        The same without the mark that arms the doorbell, as arming it once more only wakes a node in vain, and without
        what is remembered of senders.
        """
        dump = self.dump()
        dump.get(self.key("owner"), {}).pop(b"waiting", None)
        meta = dump.get(self.key("meta"), {})
        for sender in [field for field in meta if field.startswith(b"~")]:
            del meta[sender]
        return dump

    def _value(self, key: bytes) -> Any:
        match self.redis.type(key):
            case b"hash":
                return self.redis.hgetall(key)
            case b"zset":
                return self.redis.zrange(key, 0, -1, withscores=True)
            case b"list":
                return self.redis.lrange(key, 0, -1)
            case b"set":
                return self.redis.smembers(key)
            case b"string":
                return self.redis.get(key)
            case kind:
                raise AssertionError(f"{key!r} is a {kind!r}")


def _encoded(
    id: str,
    payload: bytes = b"p",
    score: float | str = "",
    perform_in: float | str = "",
    tags: str = "",
    tenant: str = "",
    fewer: str = "",
) -> EncodedJob:
    return EncodedJob(
        id.encode("utf-8", KEPT_BYTES),
        payload,
        score,
        perform_in if isinstance(perform_in, str) else f"{perform_in:.6f}",
        tags,
        tenant,
        fewer,
    )
