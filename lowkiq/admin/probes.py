"""Probes of Redis that show whether Lowkiq can work with it. They change nothing but the cache of scripts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import redis
from redis.exceptions import AskError, NoPermissionError, RedisError, ResponseError

from lowkiq import clock
from lowkiq.admin.jobs.search import Search
from lowkiq.queue import keys, scripts
from lowkiq.queue.call import Argument, Caller, chunked, redis_time
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, parsed, quoted
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.server import read_replies

#: Keys of one kind in a round trip.
AT_ONCE: Final = 1_000
#: Seconds to wait for a published message.
ARRIVES_WITHIN: Final = 2.0
#: What the morgue says of a job that was buried for its crashes ends so (endings.lua).
BURIED_FOR_CRASHES: Final = "(max_crashes)"
#: Dead jobs of a shard that are read, the newest.
NEWEST_DEAD: Final = 20

#: Every command that scripts, nodes, producers and the web view send, with arguments after the key that Redis accepts.
ON_KEYS: Final[Sequence[tuple[str, Sequence[Argument]]]] = (
    ("EXISTS", ()), ("UNLINK", ()), ("RENAME", ("{key}",)), ("EXPIRE", (1,)), ("GET", ()), ("GETRANGE", (0, 0)),
    ("MGET", ()), ("PEXPIRE", (1,)), ("SET", ("", "XX")), ("TYPE", ()),
    ("HDEL", ("f",)), ("HEXISTS", ("f",)), ("HGET", ("f",)), ("HGETALL", ()), ("HINCRBY", ("f", 0)),
    ("HSCAN", (0,)), ("HLEN", ()), ("HMGET", ("f",)), ("HSET", ("f", "")), ("HSETNX", ("f", "")), ("HSTRLEN", ("f",)),
    ("HKEYS", ()), ("HRANDFIELD", ()),
    ("BLPOP", (1,)), ("LINDEX", (0,)), ("LLEN", ()), ("LRANGE", (0, 0)), ("LSET", (0, "")), ("LTRIM", (0, 0)),
    ("PERSIST", ()), ("PTTL", ()), ("RPUSH", ("",)),
    ("ZADD", ("XX", 0, "m")), ("ZCARD", ()), ("ZCOUNT", (0, 0)), ("ZMSCORE", ("m",)), ("ZPOPMIN", ()),
    ("ZRANDMEMBER", ()),
    ("ZRANGE", (0, 0)), ("ZRANK", ("m",)), ("ZRANGEBYSCORE", (0, 0)), ("ZREM", ("m",)), ("ZREMRANGEBYRANK", (0, 0)),
    ("ZREMRANGEBYSCORE", (0, 0)), ("ZREVRANGE", (0, 0)), ("ZREVRANGEBYSCORE", (0, 0)), ("ZSCAN", (0,)),
    ("ZSCORE", ("m",)), ("ZINCRBY", (0, "m")), ("SADD", ("m",)), ("SCARD", ()), ("SREM", ("m",)), ("SSCAN", (0,)),
)  # fmt: skip


class Refusals(NamedTuple):
    """Commands and keys that Redis refuses to this user, and writes that it refuses to everybody just now."""

    #: Commands, e.g. "RPUSH".
    commands: list[str]
    #: Patterns of keys and channels, as ACL SETUSER takes them.
    patterns: list[str]
    #: Why nothing can be written: full, a replica, a disk in trouble. One error.
    writes: RedisError | None


def ping(caller: Caller) -> float:
    """Seconds that a round trip takes."""
    started = clock.monotonic()
    caller.command("PING")
    return clock.monotonic() - started


def clock_offset(caller: Caller) -> tuple[float, float]:
    """Seconds by which Redis's clock is ahead of this machine's, and by how much that may be wrong."""
    before, started = clock.real(), clock.monotonic()
    theirs = redis_time(caller)
    took = clock.monotonic() - started
    return theirs - (before + took / 2), took / 2


def read_config(caller: Caller, name: str) -> str | None:
    """A setting of the server, None when it may not be read (managed servers refuse it)."""
    try:
        found: dict[str, str] = caller.command("CONFIG GET", name)
    except ResponseError:
        return None
    return found.get(name)


def load_scripts(caller: Caller) -> bool:
    """Runs a script that does nothing, and loads all others; whether the server knows flags of scripts."""
    caller.command("EVAL", "return 1", 0)
    flags = caller.knows_flags()
    for script in scripts.load(flags=flags).values():
        caller.command("SCRIPT LOAD", script.source)
    return flags


def read_refusals(caller: Caller, namespace: str, queue: str) -> Refusals:
    """
    Commands that would be refused: each is queued in a transaction that is then discarded, since Redis checks rights
    when it queues a command, and runs none. It works for every user and version, which ACL DRYRUN does not.
    """
    probes = list(_probes(namespace, queue))
    commands: list[str] = []
    patterns: list[str] = []
    writes = None
    client = caller.client
    # Of a cluster the primary that has the keys: others redirect once they have checked rights.
    server = client.primary_of(keys.shard(namespace, queue, 0)) if isinstance(client, ClusterClient) else client
    for (name, pattern, _), reply in zip(probes, _queue_and_discard(server, probes), strict=True):
        if isinstance(reply, NoPermissionError):
            is_command = "to run the" in str(reply)  # "this user has no permissions to run the 'rpush' command"
            (commands if is_command else patterns).append(name if is_command else pattern)
        elif isinstance(reply, RedisError) and not isinstance(reply, AskError) and writes is None:
            writes = reply
    return Refusals(list(dict.fromkeys(commands)), list(dict.fromkeys(patterns)), writes)


Probe = tuple[str, str, Sequence[Argument]]


def _probes(namespace: str, queue: str) -> Sequence[Probe]:
    """Each: what is probed, the pattern of its keys or channels, and the command."""
    all_keys, bells = f"~{namespace}:*", f"&{namespace}:bell:*"
    shard = f"{keys.shard(namespace, queue, 0)}doctor"
    others = (f"{namespace}:doctor", keys.node(namespace, "doctor"), keys.history(namespace, "doctor"))
    on_keys: list[Probe] = [
        (name, all_keys, [name, shard, *(shard if word == "{key}" else word for word in words)])
        for name, words in ON_KEYS
    ]
    bell = keys.doorbell(namespace, "doctor")
    return [
        *on_keys,
        *(("SET", all_keys, ["SET", key, "", "XX"]) for key in others),
        *(("GET", all_keys, ["GET", key]) for key in others),
        ("EVAL", all_keys, ["EVAL", "return 1", 1, shard]),
        ("EVALSHA", all_keys, ["EVALSHA", "0" * 40, 1, shard]),
        ("SCRIPT LOAD", all_keys, ["SCRIPT", "LOAD", "return 1"]),
        ("TIME", all_keys, ["TIME"]),
        ("PUBLISH", bells, ["PUBLISH", bell, ""]),
        ("SUBSCRIBE", bells, ["SUBSCRIBE", bell]),
    ]


def _queue_and_discard(client: redis.Redis, probes: Sequence[Probe]) -> list[Any]:
    """
    The reply to each. All in one piece on one connection, so that none of them can be sent without its MULTI; and only
    after a MULTI alone has been accepted, so that none of them runs for want of one.
    """
    pool = client.connection_pool
    connection: Any = pool.get_connection()
    try:
        _exchange(connection, [["MULTI"], ["DISCARD"]])
        _, *replies, _ = _exchange(connection, [["MULTI"], *(command for _, _, command in probes), ["DISCARD"]])
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)
    return replies


def _exchange(connection: Any, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Sends all at once. Raises what is refused of the first and the last, which are no probes."""
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    replies = read_replies(connection, len(commands))
    for reply in (replies[0], replies[-1]):
        if isinstance(reply, Exception):
            raise reply
    return replies


def time_doorbell(caller: Caller, namespace: str) -> float | None:
    """Rings a doorbell that is nobody's and listens: seconds until the message arrives, None when it does not."""
    channel = keys.doorbell(namespace, f"doctor:{secrets.token_hex(4)}")
    make_pubsub: Any = caller.client.pubsub
    with make_pubsub() as pubsub:
        pubsub.subscribe(channel)
        deadline = clock.monotonic() + ARRIVES_WITHIN
        rung_at = None
        while (left := deadline - clock.monotonic()) > 0:
            message = pubsub.get_message(timeout=left)
            if message and message["type"] == "subscribe":
                rung_at = clock.monotonic()
                caller.command("PUBLISH", channel, b"")
            elif message and rung_at is not None:
                return clock.monotonic() - rung_at
    return None


def read_shard_layouts(caller: Caller, shards: Sequence[Shard]) -> list[Layout | None]:
    """The layout that each shard was written with, None of one that was not."""
    return [
        _layout_of(caller, shard, text)
        for some in chunked(shards, AT_ONCE)
        for shard, text in zip(
            some, caller.read([("HGET", f"{one.prefix}meta", "layout") for one in some], None), strict=True
        )
    ]


def _layout_of(caller: Caller, shard: Shard, text: bytes | None) -> Layout | None:
    met: list[Unreadable] = []
    field = f"{quoted(shard.prefix + 'meta')} layout"
    layout = parsed(met, field, f"HDEL {field}", Layout.parse, text) if text else None
    caller.met.tell(field, met)
    return layout


def read_buried(caller: Caller, shards: Sequence[Shard]) -> list[str]:
    """Ids among the newest dead jobs of each shard that were buried because their nodes died."""
    search = Search(caller, shards, str)  # Lowkiq's own errors were never dumped
    return [
        id.decode("utf-8", "replace")
        for some in chunked(shards, AT_ONCE // NEWEST_DEAD)
        for id, error in search.newest("morgue", some, NEWEST_DEAD)
        if error and error.endswith(BURIED_FOR_CRASHES)
    ]
