"""Look: what a shard holds at one moment, read without the scripts, and held against the rules that all of it keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from lowkiq.queue.letters import Letter
from lowkiq.telemetry.texts import MARK
from lowkiq.testing.model.shard_state import ClaimName

Payloads = dict[bytes, float]
#: When a blocked job is due.
NEVER = 1e30


class Queued(NamedTuple):
    payloads: Payloads
    perform_in: float
    retry_count: int = -1
    error: str | None = None
    #: It is parked behind a run of its own id; perform_in is when it was due.
    waits: bool = False
    tags: tuple[str, ...] = ()
    #: It waits for a person since then; perform_in is a time that never comes.
    blocked: float | None = None


class Claimed(NamedTuple):
    payloads: Payloads
    perform_in: float
    retry_count: int = -1
    tags: tuple[str, ...] = ()


class Dead(NamedTuple):
    payloads: Payloads
    error: str
    tags: tuple[str, ...] = ()
    #: The lowest score of payloads that were left when some died.
    newer: float | None = None


#: Names, types and values of all keys of a shard, and the names of others beside it. The shard's prefix holds nothing
#: that a glob would read, its braces included.
LOOK = """
local found = {}
for i, key in ipairs(redis.call('KEYS', KEYS[1] .. '*')) do
    local kind = redis.call('TYPE', key).ok
    local read = {hash = {'HGETALL', key}, zset = {'ZRANGE', key, 0, -1, 'WITHSCORES'}, list = {'LRANGE', key, 0, -1},
        set = {'SMEMBERS', key}, string = {'GET', key}}
    found[i] = {string.sub(key, #KEYS[1] + 1), kind, read[kind] and redis.call(unpack(read[kind])) or {}}
end
return {found, redis.call('KEYS', ARGV[1])}
"""


class Look:
    """The keys of a shard, without its prefix, with the type and the value of each; and the names of keys beside it."""

    def __init__(self, keys: dict[str, list[Any]], beside: list[bytes]) -> None:
        self.keys, self.beside = keys, beside

    def queued(self) -> dict[str, Queued]:
        due, retries, errors, behind = self.zset("due"), self.zset("retries"), self.errors(), self.hash("behind")
        payloads = self._payloads("payloads", due)
        assert behind.keys() == {id for id, score in due.items() if score == math.inf}, "parked is what is due at inf"
        left = behind.keys() - self.claimed().keys() - self.zset("held").keys()
        assert not left, "what is parked waits behind a claim that holds its id, or is held"
        due |= {id: float(own) for id, own in behind.items()}
        blocked = self.zset("blocked")
        assert blocked.keys() == {id for id, score in due.items() if score == NEVER}, "blocked is what is never due"
        assert not blocked.keys() & retries.keys(), "what is blocked is not tried again"
        assert not any(is_compact(self.hash("payloads")[id]) for id in blocked), "what is blocked is in full"
        assert due.keys() == payloads.keys()
        assert retries.keys() <= due.keys()
        assert not any(is_compact(self.hash("payloads")[id]) for id in retries), "what has failed is in full"
        tags = self.tags("tags")
        assert tags.keys() <= due.keys(), "tags of nothing that is queued"
        return {
            id: Queued(
                payloads[id],
                due[id],
                int(retries.get(id, -1)),
                errors.get(id),
                id in behind,
                tags.get(id, ()),
                blocked.get(id),
            )
            for id in due
        }

    def claimed(self) -> dict[str, Claimed]:
        """The jobs of all claims in hand."""
        claims = self.claims().values()
        ids = [id for claim in claims for id in claim]
        assert self.tags("claimed_tags").keys() <= set(ids), "tags of nothing that is claimed"
        assert len(ids) == len(set(ids)), f"I4: an id is in two claims: {ids}"
        return {id: job for claim in claims for id, job in claim.items()}

    def claims(self) -> dict[ClaimName, dict[str, Claimed]]:
        """The claims in hand: those that are away, then those of the owner by number, the oldest first."""
        owner, asides, several = self.hash("owner"), self.hash("asides"), self._several("claim")
        assert {f"aside:{number}" for number in asides} == {key for key in self.keys if key.startswith("aside:")}
        found = {name: self._claim(f"aside:{name}", last_due, several) for name, last_due in asides.items()}
        claims = {int(name): claim for name, claim in found.items() if ":" not in name}
        away: dict[ClaimName, dict[str, Claimed]] = {
            claim_name(name): claim for name, claim in found.items() if ":" in name
        }
        assert away.keys() == self.away().keys(), "claims that are away have a lease"
        newest = self._claim("claim", owner.get("last_due"), several)
        assert not several, f"zsets that no record names: {several}"
        if newest:
            assert "claim" in owner, "a claim without a number"
            assert int(owner["claim"]) > max(claims, default=0), "a claim set aside is older than the newest"
            claims[int(owner["claim"])] = newest
        return {**away, **dict(sorted(claims.items()))}

    def away(self) -> dict[tuple[int, int], tuple[float, float, bool, str, str]]:
        """The leases of claims that are away: until when, their time, whether they are left, node, who runs alone."""
        found = {}
        for name, text in self.hash("away").items():
            until, ttl, left, length, words = text.decode().split(" ", 4)
            node, alone = words[: int(length)], words[int(length) :]
            found[claim_name(name)] = (float(until), float(ttl), left == "1", node, alone)
        return found

    def morgue(self) -> dict[str, Dead]:
        index, payloads, errors = self.zset("morgue"), self._payloads("morgue:payloads"), self.hash("morgue:errors")
        assert index.keys() == payloads.keys() == errors.keys()
        tags = self.tags("morgue:tags")
        assert tags.keys() <= index.keys(), "tags of nothing that is dead"
        newer = {id: float(score) for id, score in self.hash("morgue:newer").items()}
        assert newer.keys() <= index.keys(), "newer than nothing that is dead"
        return {id: Dead(payloads[id], errors[id].decode(), tags.get(id, ()), newer.get(id)) for id in index}

    def untold(self) -> list[str]:
        """The ids of which letters tell that deaths have buried them."""
        records = self.hash("letters")
        letters = [Letter.parse(name.encode(), b"0", records[name]) for name in self.zset("outbox")]
        assert {letter.kind for letter in letters} <= {b"buried"}
        return [letter.of.decode() for letter in letters]

    def put_away(self) -> dict[tuple[str, str], tuple[list[bytes | None], Payloads]]:
        """What deletions keep, by their names and ids: what is known of a job (put_away.lua), and its payloads."""
        found = {}
        names = [key for key in self.keys if key.startswith("undo:") and key.count(":") == 1]
        several = {key for key in self.keys if key.startswith("undo:")} - set(names)
        for name in names:
            for id, record in self.hash(name).items():
                fields = list(_fields(record))
                held = fields[4]
                assert held is not None, "kept without its payloads"
                assert fields[1] != b"inf", "kept as parked"
                if held == b"*":
                    assert f"{name}:{id}" in several, f"the payloads of {id} are gone, and it is kept"
                    payloads = {payload: float(score) for payload, score in self._pairs(f"{name}:{id}", b"zset")}
                    several.remove(f"{name}:{id}")
                else:
                    payloads = _held(held, {}, id)
                found[name.removeprefix("undo:"), id] = (fields, payloads)
        assert not several, f"zsets that no deletion names: {several}"
        return found

    def tags(self, name: str) -> dict[str, tuple[str, ...]]:
        return {id: tuple(text.decode().split("\n")) for id, text in self.hash(name).items()}

    def check_tags(self) -> None:
        """Every tag of an id is known by its name, and nothing else is."""
        ids: dict[str, set[str]] = {}
        for name in ("tags", "claimed_tags", "morgue:tags"):
            for id, tags in self.tags(name).items():
                for tag in (tag for tag in tags if not tag.startswith(MARK)):  # contexts are not searched for
                    ids.setdefault(f"tagged:{tag}", set()).add(id)
        known = {name: {id.decode() for id in value} for name, (kind, value) in self.keys.items() if kind == b"set"}
        assert known == ids, f"tags: known are {known}, there are {ids}"
        counts = {f"tagged:{tag}": count for tag, count in self.zset("tag_counts").items()}
        assert counts == {name: len(some) for name, some in ids.items()}, f"tags: counted {counts} of {ids}"

    def lanes(self) -> dict[str, dict[str, float]]:
        """The hints of each lane, by their ids. There are no lanes but those that take turns, now or later."""
        turns, later, tenants = self.zset("lanes"), self.zset("lanes_later"), self.hash("tenants")
        lanes = {name.removeprefix("lane:"): self.zset(name) for name in self.keys if name.startswith("lane:")}
        known = turns.keys() | later.keys()
        assert lanes.keys() == known - {""}, f"lanes: {lanes.keys()}, known are {known}"
        assert "" not in known or known != {""}, "the queue takes turns with nobody"
        for tenant, hints in lanes.items():
            first = min(hints.values())
            assert tenant in turns or later[tenant] <= first, f"lane {tenant} is late: {later} for {first}"
            strangers = {id for id in hints if tenants.get(id) != tenant.encode() or id not in self.zset("due")}
            assert not strangers, f"in lane {tenant} are {strangers}"
        return lanes

    def deaths(self, name: str) -> dict[str, int]:
        return {id: int(count) for id, count in self.hash(name).items()}

    def errors(self) -> dict[str, str]:
        return {id: error.decode() for id, error in self.hash("errors").items()}

    def holds(self) -> dict[str, tuple[float, bytes]]:
        """Ids that are held: since when, and who and why."""
        held, holds = self.zset("held"), self.hash("holds")
        assert held.keys() == holds.keys(), "held by whom?"
        return {id: (since, holds[id]) for id, since in held.items()}

    def pause(self) -> bytes | None:
        """Since when, and by whom it is paused."""
        kind, value = self.keys.get("paused", [b"string", None])
        assert kind == b"string"
        return value if isinstance(value, bytes) else None

    def zset(self, name: str) -> dict[str, float]:
        return {member.decode(): float(score) for member, score in self._pairs(name, b"zset")}

    def hash(self, name: str) -> dict[str, bytes]:
        return {field.decode(): value for field, value in self._pairs(name, b"hash")}

    def _claim(self, name: str, last_due: bytes | None, several: dict[str, Payloads]) -> dict[str, Claimed]:
        pairs = [(id.decode(), record) for id, record in self._pairs(name, b"list")]
        tags = self.tags("claimed_tags")
        assert len(pairs) == len(dict(pairs)), f"an id is claimed twice: {pairs}"
        found = {}
        for id, record in pairs:
            if is_compact(record):
                assert last_due is not None, "nothing tells when a job is due whose record is compact"
                due_at = compact_us(record, int(last_due)) / 1e6
                found[id] = Claimed({record[4:]: due_at}, due_at, -1, tags.get(id, ()))
                continue
            perform_in, retry_count, held = record.split(b":", 2)
            held_payloads = _held(held, several, id)
            found[id] = Claimed(held_payloads, float(perform_in), int(float(retry_count)), tags.get(id, ()))
        return found

    def _several(self, name: str) -> dict[str, Payloads]:
        """Ids with more than one payload."""
        names = [key for key in self.keys if key.startswith(f"{name}:")]
        return {
            key.removeprefix(f"{name}:"): {payload: float(score) for payload, score in self._pairs(key, b"zset")}
            for key in names
        }

    def _payloads(self, name: str, due: dict[str, float] | None = None) -> dict[str, Payloads]:
        several = self._several(name)
        payloads = {id: _held(held, several, id, (due or {}).get(id)) for id, held in self.hash(name).items()}
        assert not several, f"zsets that no record names: {several}"
        return payloads

    def _pairs(self, name: str, expected: bytes) -> Iterator[tuple[bytes, bytes]]:
        kind, value = self.keys.get(name, [expected, []])
        assert kind == expected, f"{name} is a {kind!r}"
        return zip(value[::2], value[1::2], strict=True)


def claim_name(name: str) -> tuple[int, int]:
    """The epoch and number of a claim that is away, whatever moves it has behind it."""
    epoch, _, number = name.partition(":")
    return int(epoch), int(number.partition("@")[0])


def _fields(record: bytes) -> Iterator[bytes | None]:
    while record:
        if record[:1] == b"-":
            record = record[1:]
            yield None
            continue
        length, _, rest = record.partition(b":")
        yield rest[: int(length)]
        record = rest[int(length) :]


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
    """True if it begins with the last bits of its time (payloads.lua)."""
    return record[0] >= 128


def compact_us(record: bytes, last: int) -> int:
    """The time a job with a compact record is due, in microseconds: `last`, or not long before."""
    return last - (last - int.from_bytes(record[:4], "big")) % 2**31
