"""
Junk: what somebody else may have written into Redis, at every key that Lowkiq reads; and what it shows of each.

A queue q of two shards, `set_up`, has jobs as any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.queue import keys

NOW = 2e9
HUGE = b"9" * 5_000
GARBAGE = (b"", b"<b>", b"\xff\xfe", b"nan", b"-1", b"inf", HUGE)
#: A terminal's escape, markup, a line feed and what is no UTF-8.
EVIL = b"\x1b[31m<b onload=x>\nq\xff\xe2\x80\xae"

Client = Any
Plant = Callable[[Client, str], object]


def as_kind(client: Client, key: str | bytes, kind: str) -> None:
    """Puts a value of another kind at a key."""
    client.delete(key)
    make = {
        "string": lambda: client.set(key, EVIL),
        "list": lambda: client.rpush(key, EVIL),
        "hash": lambda: client.hset(key, EVIL, EVIL),
        "zset": lambda: client.zadd(key, {EVIL: 1}),
    }
    make[kind]()


SHARD_KEYS = {
    "due": "hash", "retries": "hash", "claim": "string", "morgue": "list", "meta": "zset", "owner": "string",
    "payloads": "zset", "errors": "list", "crashes": "string", "morgue:payloads": "string", "morgue:errors": "zset",
    "cancels": "string", "checkpoints": "list", "tags": "string", "claimed_tags": "list", "morgue:tags": "zset",
    "tag_counts": "hash", "tracks": "string", "morgue:newer": "list", "blocked": "hash",
    "tenants": "list", "lanes": "hash", "lanes_later": "string",
}  # fmt: skip
FIXED_KEYS = {
    "alerts": "list",
    "queues": "string",
    "nodes": "hash",
    "bulks": "hash",
    "unowned": "list",
    "{history}": "hash",
}
#: Of a queue's ledger, which is read where jobs of it have failed. Nodes make room for theirs.
LEDGER = {"seen": "string", "first": "zset", "counts": "list"}
HISTORIES = ("{history}::5m", "{history}::1h", "{history}:q:5m", "{history}:q:30d")
#: Kept only to be overwritten, so nobody needs to remove it.
HEALS = frozenset({"alerts", "unowned", "{history}"})


def wrong_kind(name: str, kind: str) -> Plant:
    return lambda client, ns: as_kind(client, f"{ns}:{name}", kind)


def field(name: str, field: str | bytes, value: bytes) -> Plant:
    return lambda client, ns: client.hset(f"{ns}:{name}", field, value)


def beat(text: bytes, name: bytes = b"host:9:z") -> Plant:
    def plant(client: Client, ns: str) -> None:
        client.zadd(keys.nodes(ns), {name: client.time()[0] + 1_000})  # for as long as a slow machine takes
        client.set(keys.node(ns, "").encode() + name, text)

    return plant


def bulk(text: bytes, id: bytes = b"0123456789abcdef") -> Plant:
    def plant(client: Client, ns: str) -> None:
        client.zadd(keys.bulks(ns), {id: client.time()[0]})
        client.set(keys.bulk(ns, "").encode() + id, text)

    return plant


def incident(text: bytes, key: bytes = b"evil", at: str | float = NOW, end: bytes = b"") -> Plant:
    def plant(client: Client, ns: str) -> None:
        client.zadd(keys.incidents(ns), {key: at})
        client.hset(keys.incidents_said(ns), key, text)
        if end:
            client.hset(keys.incidents_ends(ns), key, end)

    return plant


def point(text: bytes) -> Plant:
    return lambda client, ns: client.rpush(f"{ns}:{{history}}::5m", *[text] * 4)


def job(record: bytes, where: str = "due") -> Plant:
    payloads = "morgue:payloads" if where == "morgue" else "payloads"

    def plant(client: Client, ns: str) -> None:
        client.zadd(f"{ns}:{{q:0}}:{where}", {b"bad" + EVIL: 1})
        client.hset(f"{ns}:{{q:0}}:{payloads}", b"bad" + EVIL, record)

    return plant


def several(client: Client, ns: str) -> None:
    job(b"*")(client, ns)
    client.set(f"{ns}:{{q:0}}:payloads:".encode() + b"bad" + EVIL, EVIL)


def claimed(record: bytes) -> Plant:
    return lambda client, ns: client.rpush(f"{ns}:{{q:0}}:claim", b"bad" + EVIL, record)


def tagged(text: bytes, score: str | float = 1) -> Plant:
    """Tags of a job, and those that are counted."""

    def plant(client: Client, ns: str) -> None:
        client.hset(f"{ns}:{{q:0}}:tags", mapping={b"1": text, b"bad" + EVIL: text})
        client.hset(f"{ns}:{{q:0}}:morgue:tags", "dead", text)
        client.zadd(f"{ns}:{{q:0}}:tag_counts", {text: score, "eu": score, "us": "-inf"})
        client.sadd(f"{ns}:{{q:0}}:tagged:eu", b"1", b"gone", EVIL)

    return plant


def times(text: bytes) -> Plant:
    return lambda client, ns: client.set(keys.times(ns, "q"), text)


def put_away(record: bytes, name: str = "0123456789abcdef") -> Plant:
    """A deletion that was kept, as put_away.lua would write it, were this its record."""

    def plant(client: Client, ns: str) -> None:
        client.hset(f"{ns}:{{q:0}}:undo:{name}", mapping={b"1": record, EVIL: record})

    return plant


def tracked(note: bytes, count: bytes = b"1", kind_of: str = "") -> Plant:
    """A tracked id; and if asked for, in place of one of its two lists, another kind."""

    def plant(client: Client, ns: str) -> None:
        client.hset(f"{ns}:{{q:0}}:tracks", mapping={b"1": count, EVIL: count})
        client.rpush(f"{ns}:{{q:0}}:tracked:1", note)
        if kind_of:
            as_kind(client, f"{ns}:{{q:0}}:{kind_of}:1", "hash")

    return plant


def seen(name: str | None = None, kind: str = "", text: bytes = b"") -> Plant:
    """A job whose error is in the ledger; and there, in place of one key, another kind, or of its value, this."""

    def plant(client: Client, ns: str) -> None:
        prefix = keys.failures(ns, "q")
        client.zadd(f"{ns}:{{q:0}}:retries", {"1": 1})
        client.hset(f"{ns}:{{q:0}}:errors", "1", "boom")
        client.zadd(f"{prefix}seen", {"boom": 1.0, EVIL: "inf", b"long" * 10_000: 2.0})
        for field in ("first", "counts"):
            client.hset(f"{prefix}{field}", "boom", text or 1)
        if name:
            as_kind(client, f"{prefix}{name}", kind)

    return plant


GOOD_BEAT: dict[str, Any] = {
    "node": "n", "boot_id": "b", "host": "h", "pid": 1, "supervisor_pid": None, "node_number": 0,
    "number_of_nodes": 1, "slot": None, "state": "ready", "started_at": 1.0, "beat_at": 2.0, "version": "1",
    "owned": {}, "waited_for": {}, "threads": [], "processed": 0, "failed": 0, "rss": 1, "cpu_percent": 1.0,
    "redis_round_trip": 0.1, "restarts": 0, "last_exit": None,
}  # fmt: skip
GOOD_BULK: dict[str, Any] = {
    "id": "0123456789abcdef", "queue": "q", "action": "delete", "match": {"view": "due"}, "total": 1, "seen": 0,
    "moved": 0, "state": "done", "started_at": 1.0, "updated_at": 2.0,
}  # fmt: skip
THREAD = {"name": "t", "queue": "q", "shard": 0, "ids": ["1"], "jobs": 1, "seconds": 1.0}


def changed(good: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps(good | fields).encode()


BEATS: dict[str, bytes] = {
    **{f"{text[:9]!r}": text for text in GARBAGE},
    "deep": b"[" * 100_000,
    "list": b"[1]",
    "many nodes": changed(GOOD_BEAT, number_of_nodes=10**18),
    "number": changed(GOOD_BEAT, node_number=-1),
    "old": changed(GOOD_BEAT, started_at=-1e300),
    "large": changed(GOOD_BEAT, rss=10**400),
    "fast": changed(GOOD_BEAT, cpu_percent=1e300),
    "threads": changed(GOOD_BEAT, threads=[THREAD] * 20_000),
    "ids": changed(GOOD_BEAT, threads=[THREAD | {"ids": ["x"] * 5_000}]),
    "long": changed(GOOD_BEAT, host="x" * 100_000),
    "seconds": changed(GOOD_BEAT, threads=[THREAD | {"seconds": 1e300}]),
    "histories": changed(GOOD_BEAT, rss_history=[1] * 100_000),
    "shards": changed(GOOD_BEAT, owned={"q": list(range(100_000))}),
    "queues": changed(GOOD_BEAT, owned={f"{n}": [0] for n in range(100_000)}),
    "whole": b" " * (8 << 20) + changed(GOOD_BEAT),
}
BULKS: dict[str, bytes] = {
    **{f"{text[:9]!r}": text for text in GARBAGE},
    "another": changed(GOOD_BULK, id="<b>"),
    "action": changed(GOOD_BULK, action="<b>"),
    "not of the view": changed(GOOD_BULK, action="revive"),
    "view": changed(GOOD_BULK, match={"view": "<b>"}),
    "state": changed(GOOD_BULK, state="<b>"),
    "total": changed(GOOD_BULK, total=10**400),
    "negative": changed(GOOD_BULK, total=-5),
    "time": changed(GOOD_BULK, started_at=1e300),
    "queue": changed(GOOD_BULK, queue=7),
}
GOOD_INCIDENT: dict[str, Any] = {"kind": "death", "severity": "bad", "says": "it died"}
INCIDENTS: dict[str, bytes] = {
    **{f"{text[:9]!r}": text for text in GARBAGE},
    "deep": b"[" * 100_000,
    "severity": changed(GOOD_INCIDENT, severity="<b>"),
    "long": changed(GOOD_INCIDENT, says="x" * 100_000),
    "node": changed(GOOD_INCIDENT, node=7),
}
POINTS = (b"", b"<b>", b"\xff", b"1", b"1 2 3", b"nan 1 1 1 1 1 1 1 1 1", b"x 1 1 1 1 1 1 1 1 1",
          b"9999999999 " + HUGE + b" 1 1 1 1 1 1 1 1", b"9999999999 1 1 1 1 inf 1 1 1 1")  # fmt: skip

GOOD_NOTE = b"done 1.0 1 n"
NOTES = (b"done nan 1 n", b"done", b"<b> 1.0 1 n", b"done 1.0.0 1 n", b"done " + HUGE + b" 1 n")
TIMES = (b"1 1 1 5 1", b"1 1 1 5 1|1 nan 1 5 1", b"|", b"9" * 20_000, b"1 1 1 999 1|0 0 0", EVIL)

#: Name → how it is planted, and what the alert has to name; None where it heals, or is no more than strange.
JUNK: dict[str, tuple[Plant, str | None]] = {
    **{f"kind of {key}": (wrong_kind(f"{{q:0}}:{key}", kind), f"{{q:0}}:{key}") for key, kind in SHARD_KEYS.items()},
    **{f"kind of {key}": (wrong_kind(key, kind), None if key in HEALS else key) for key, kind in FIXED_KEYS.items()},
    **{f"kind of {key}": (wrong_kind(key, "string"), key) for key in HISTORIES},
    **{
        f"shards_count {text[:9]!r}": (field("queues", "x", text), ":queues x")
        for text in (*GARBAGE, b"0", b"99999999999", b"65537", b"2:99999999999", b"1.5", b"1e3", b"5:", b":5", b" 5")
    },
    "name of a queue": (field("queues", EVIL, b"1"), r':queues "\x1b[31m<b onload=x>\nq\xff\xe2\x80\xae"'),
    "long name of a queue": (field("queues", b"q" * 100_000, b"1"), ":queues"),
    **{
        f"{counter} {text[:9]!r}": (field("{q:0}:meta", counter, text), f"meta {counter}")
        for counter in ("processed", "failed", "pushed", "merged")
        for text in GARBAGE
        if text
    },
    **{f"epoch {text[:9]!r}": (field("{q:0}:owner", "epoch", text), "owner epoch") for text in GARBAGE if text},
    **{f"until {text[:9]!r}": (field("{q:0}:owner", "until", text), None) for text in GARBAGE},
    "owner": (field("{q:0}:owner", "node", EVIL), None),
    **{f"since {text[:9]!r}": (field("alerts", "late queue:q", text), None) for text in GARBAGE},
    "alert": (field("alerts", EVIL, EVIL), None),
    **{f"last_score {text[:9]!r}": (field("{q:0}:meta", "last_score", text), None) for text in GARBAGE},
    **{f"seen {text[:9]!r}": (field("{q:0}:meta", "seen", text), None) for text in GARBAGE},
    **{f"beat {name}": (beat(text), "host:9:z" if text else None) for name, text in BEATS.items()},
    "name of a node": (beat(b"{", EVIL), r":\x1b[31m<b onload=x>\nq\xff"),
    "kind of a beat": (lambda client, ns: (beat(b"")(client, ns), as_kind(client, f"{ns}:node:host:9:z", "hash")),
                       "host:9:z"),
    **{f"bulk {name}": (bulk(text), ":bulk:0123456789abcdef" if text else None) for name, text in BULKS.items()},
    "name of a bulk": (bulk(b"{", EVIL), r"\x1b[31m<b onload=x>\nq\xff"),
    "kind of a bulk": (lambda client, ns: (bulk(b"")(client, ns), as_kind(client, f"{ns}:bulk:0123456789abcdef",
                       "hash")), ":bulk:0123456789abcdef"),
    **{f"point {text[:20]!r}": (point(text), "{history}::5m") for text in POINTS},
    # What begins so is compact, and has no colon.
    **{f"record {text[:9]!r}": (job(text), "payloads") for text in (*GARBAGE, b"nan:1", b"x:1") if text[:1] < b"\x80"},
    **{f"dead record {text[:9]!r}": (job(text, "morgue"), "morgue:payloads") for text in (*GARBAGE, b"inf:1")},
    "record of several": (several, "payloads"),
    **{f"claimed {text[:9]!r}": (claimed(text), "claim") for text in (*GARBAGE, b"x:y:z", b"1:-1:x:1", b"nan:0:1:1")},
    "odd claim": (lambda client, ns: client.rpush(f"{ns}:{{q:0}}:claim", b"alone"), None),
    "endless due": (lambda client, ns: client.zadd(f"{ns}:{{q:0}}:due", {"a": "-inf", "1": "inf"}), None),
    "endless retries": (lambda client, ns: client.zadd(f"{ns}:{{q:0}}:retries", {"1": "inf"}), None),
    "endless morgue": (lambda client, ns: client.zadd(f"{ns}:{{q:0}}:morgue", {"dead": "-inf"}), None),
    "endless beat": (lambda client, ns: client.zadd(f"{ns}:nodes", {"x": "inf", "y": "-inf"}), None),
    **{f"crashes {text[:9]!r}": (field("{q:0}:crashes", "1", text), "crashes") for text in GARBAGE if text},
    "error": (field("{q:0}:errors", "1", EVIL * 100_000), None),
    "traceback": (field("{q:0}:errors", "1", b"\n\nTraceback (most recent call last):\n" + EVIL), None),
    **{f"tags {text[:9]!r}": (tagged(text), None) for text in (*GARBAGE, EVIL, b"\n" * 1_000, b"eu\n" * 10_000)},
    "endless tags": (tagged(b"eu", "inf"), None),
    "kind of ids of a tag": (wrong_kind("{q:0}:tagged:eu", "zset"), "{q:0}:tagged:eu"),
    **{f"count of a track {text[:9]!r}": (tracked(GOOD_NOTE, text), None) for text in GARBAGE},
    **{f"transition {text[:9]!r}": (tracked(text), "{q:0}:tracked:1") for text in (*GARBAGE, *NOTES)},
    "evil transition": (tracked(b"failed 1.0 1 n" + EVIL), None),
    **{f"kind of {key} of a track": (tracked(GOOD_NOTE, kind_of=key), f"{{q:0}}:{key}:1")
       for key in ("tracked", "tracked_last")},
    **{f"times {text[:9]!r}": (times(text), "{history}:q:times") for text in (*GARBAGE, *TIMES) if text},
    "kind of times": (wrong_kind("{history}:q:times", "list"), "{history}:q:times"),
    "kind of a number of times": (wrong_kind("{history}::added:host:2:y", "list"), None),
    "kind of watch": (wrong_kind("{q:0}:watch", "zset"), None),
    **{f"kind of a ledger's {name}": (seen(name, kind), f"{{failures}}:q:{name}") for name, kind in LEDGER.items()},
    **{f"ledger of {text[:9]!r}": (seen(text=text), "{failures}:q:") for text in GARBAGE if text},
}  # fmt: skip

#: Records of deletions: where, when, retry_count, error, payloads, deaths, deaths in a crowd, checkpoint, tags, tenant.
PUT_AWAY = (
    *GARBAGE, b"5:queue", b"5:queue1:x---", b"5:queue3:1.0-----", b"5:queue3:1.0--3:x:1----",
    b"5:queue3:1.0--5:nan:1----", b"5:queue3:1.0--1:1----", b"5:queue3:nan--3:1:1----", b"5:queue3:inf--3:1:1----",
    b"5:queue3:1.01:x-3:1:1----", b"6:morgue1:x--3:1:1----", b"6:morgue3:inf--3:1:1----", b"1:x3:1.0--3:1:1----",
    b"9999999999999:x",
)  # fmt: skip

#: What only who asks for incidents meets.
OF_INCIDENTS: dict[str, tuple[Plant, str]] = {
    **{f"incident {name}": (incident(text), "{incidents}:said evil") for name, text in INCIDENTS.items()},
    "name of an incident": (incident(b"{", EVIL), r"\x1b[31m<b onload=x>\nq\xff"),
    "endless incident": (incident(changed(GOOD_INCIDENT), at="inf"), "{incidents}:said evil"),
    "end of an incident": (incident(changed(GOOD_INCIDENT), end=b"<b>"), "{incidents}:said evil"),
    **{f"kind of {key}": (wrong_kind(key, "string"), key)
       for key in ("{incidents}", "{incidents}:said", "{incidents}:ends")},
}  # fmt: skip


def set_up(app: Lowkiq) -> Any:
    """Jobs, and dead ones, in each of two shards; returns a client."""
    client, ns = app.redis(), app.settings.namespace
    client.hset(keys.queues(ns), "q", 2)
    for number in range(2):
        client.zadd(f"{ns}:{{q:{number}}}:due", {"1": NOW, "2": NOW})
        client.hset(f"{ns}:{{q:{number}}}:payloads", mapping={"1": b"1.0:1", "2": b"2.0:1"})
        client.zadd(f"{ns}:{{q:{number}}}:morgue", {"dead": 1.0})
        client.hset(f"{ns}:{{q:{number}}}:morgue:payloads", "dead", b"1.0:1")
    return client


def sampled(names: Iterable[str]) -> list[Any]:
    """All of them for the rare tests, and a sample for the others."""
    return [
        name if number % 6 == 0 else pytest.param(name, marks=pytest.mark.rare) for number, name in enumerate(names)
    ]
