"""Checks of the Redis server: is it there, does it keep jobs, is it near and on time?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Final

import redis
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError

from lowkiq import clock
from lowkiq.admin import probes
from lowkiq.admin.redis_health import NEARLY_FULL
from lowkiq.doctor.finding import Verdict, note, ok, problem, warning
from lowkiq.doctor.subject import Patient
from lowkiq.transport.connect import OLDEST_REDIS

#: Seconds by which clocks may differ. perform_in is absolute, and due by Redis's clock.
CLOCKS_MAY_DIFFER: Final = 1.0
#: Round trips that are measured, and seconds after which it is enough.
PINGS, PINGS_WITHIN = 100, 2.0
#: Seconds of a round trip: more than a local network takes, and what somebody else must have held up.
FAR, HELD_UP = 0.005, 0.1
#: Share of maxclients from which people should know.
NEARLY_ALL: Final = 0.8


#: Error → what to do.
TO_REACH: Final[Mapping[type[RedisError], str]] = {
    BusyLoadingError: "it is reading its data: wait; nodes do the same",
    AuthenticationError: "check user and password in the URL",
    redis.TimeoutError: "see its log and whether its process is stopped; or a firewall drops what is sent",
}
#: Word of its message → what to do.
SAID: Final[Mapping[str, str]] = {
    "max number of clients": "raise maxclients of Redis, or find who holds so many connections: CLIENT LIST",
    "ssl": "check that the server speaks TLS, and its certificate: ?ssl_ca_certs=FILE in the URL names its issuer",
}


def answers(patient: Patient) -> Iterator[Verdict]:
    """Whether there is anything to examine."""
    try:
        probes.ping(patient.caller)
    except RedisError as error:
        yield problem(
            f"can't use Redis at {patient.url} (from {patient.url_source}): {error}", _how_to_reach(patient, error)
        )
    else:
        yield ok(f"Redis answers at {patient.url} (from {patient.url_source})")


def _how_to_reach(patient: Patient, error: RedisError) -> str:
    for kind, do in TO_REACH.items():
        if isinstance(error, kind):
            return do
    for word, do in SAID.items():
        if word in str(error).lower():
            return do
    if patient.is_embedded:
        return "start lowkiq-supervisor, which runs this Redis; or set LOWKIQ_REDIS_URL to use another"
    if patient.url_source == "the default":
        return "set LOWKIQ_REDIS_URL; or start lowkiq-supervisor here, which without one brings its own Redis"
    return "start Redis there, or set LOWKIQ_REDIS_URL to where it is"


def version(patient: Patient) -> Iterator[Verdict]:
    """Whether it has the commands that scripts need."""
    info = patient.info
    number = str(info.get("redis_version", "0"))
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {number}"
    if tuple(int(part) for part in number.split(".")[:2]) < OLDEST_REDIS:
        yield problem(f"{name} is too old: nodes refuse it", "upgrade it to 6.2 or later, or to Valkey")
    else:
        yield ok(name)


def role(patient: Patient) -> Iterator[Verdict]:
    """Whether it takes writes of all shards."""
    if patient.info.get("role", "master") != "master":
        yield problem("it is a replica: jobs can't be written to it", "give the URL of its primary")
    if patient.info.get("cluster_enabled") and not patient.caller.is_spread:
        yield problem(
            "it is one node of Redis Cluster: shards in slots of other nodes can't be reached by this URL",
            "begin the URL with redis+cluster:// (or rediss+cluster://)",
        )


def persistence(patient: Patient) -> Iterator[Verdict]:
    """What is left of accepted jobs when Redis dies."""
    info = patient.info
    if not info.get("aof_enabled"):
        kept = "nothing is kept on disk" if patient.config("save") == "" else "all since the last snapshot is lost"
        yield warning(
            f"no append-only file: when Redis dies, {kept}",
            "CONFIG SET appendonly yes, and the same in redis.conf",
        )
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield problem("the append-only file can't be written", "see Redis's log, and whether its disk is full")
    else:
        yield from _fsync(patient.config("appendfsync"))
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield warning(
            "the last snapshot failed; by default Redis then refuses writes",
            "see Redis's log: its disk may be full, or memory too short to fork (vm.overcommit_memory=1)",
        )


def _fsync(policy: str | None) -> Iterator[Verdict]:
    match policy:
        case "no":
            yield warning(
                "append-only file, but appendfsync is no: half a minute may be lost with its machine",
                "CONFIG SET appendfsync everysec, and the same in redis.conf",
            )
        case "everysec":
            yield ok("append-only file: at most a second is lost with its machine, nothing with Redis alone")
        case "always":
            yield ok("append-only file, synced at each write: nothing is lost")
        case _:
            yield ok("append-only file; how often it is synced, this server doesn't tell")


def memory(patient: Patient) -> Iterator[Verdict]:
    """Whether jobs are thrown away, or refused, for want of it."""
    info = patient.info
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if limit and policy != "noeviction":
        yield problem(
            f"maxmemory-policy is {policy}: it throws jobs away when memory is full, so nodes refuse it",
            "CONFIG SET maxmemory-policy noeviction, or give Lowkiq a Redis of its own",
        )
    elif policy != "noeviction":
        yield note(f"maxmemory-policy is {policy}, which does no harm as long as there is no maxmemory")
    if limit and used > limit * NEARLY_FULL:
        yield warning(
            f"memory is {used / limit:.0%} full: when it is full, pushes are refused",
            "raise maxmemory, or run more nodes to work the queues off",
        )
    elif limit:
        yield ok(f"{used / 2**20:,.0f} of {limit / 2**20:,.0f} MiB used")
    else:
        yield ok(f"{used / 2**20:,.0f} MiB used, no maxmemory")


def clocks(patient: Patient) -> Iterator[Verdict]:
    """A due time is told by this machine's clock and kept by Redis's."""
    offset, error = probes.clock_offset(patient.caller)
    if abs(offset) - error >= CLOCKS_MAY_DIFFER:
        yield warning(
            f"Redis's clock is {abs(offset):,.1f} s {'ahead of' if offset > 0 else 'behind'} this machine's: a "
            "perform_in made here is due by as much too " + ("early" if offset > 0 else "late"),
            "run NTP on both: chrony or systemd-timesyncd",
        )
    else:
        yield ok(f"Redis's clock and this machine's agree within {abs(offset) + error:.3f} s")


def latency(patient: Patient) -> Iterator[Verdict]:
    """What each claim and each push pays."""
    deadline = clock.monotonic() + PINGS_WITHIN
    trips = [probes.ping(patient.caller)]
    while len(trips) < PINGS and clock.monotonic() < deadline:
        trips.append(probes.ping(patient.caller))
    yield from _judge_trips(trips)


def _judge_trips(trips: list[float]) -> Iterator[Verdict]:
    median, worst = statistics.median(trips), max(trips)
    told = f"round trips: median {median * 1000:.1f} ms, worst {worst * 1000:.1f} ms of {len(trips)}"
    if median > FAR:
        yield warning(
            f"{told}: each push waits as long, and a thread starts at most {1 / median:,.0f} slow batches a second",
            "run nodes and producers beside Redis; push many jobs a call; raise batch_size",
        )
    elif worst > HELD_UP:
        yield note(f"{told}: something holds up Redis or this machine at times (SLOWLOG GET tells)")
    else:
        yield ok(told)


def connections(patient: Patient) -> Iterator[Verdict]:
    """Whether there are enough for all nodes."""
    limit, used = int(patient.info.get("maxclients", 0)), int(patient.info.get("connected_clients", 0))
    nodes, each = patient.number_of_nodes, patient.connections_of_a_node
    told = f"{used} of {limit:,} connections are used; {nodes} node{'s' * (nodes > 1)} may need {nodes * each}"
    if limit and nodes * each > limit:
        yield problem(f"{told}: some can't connect", "raise maxclients of Redis, or lower threads_per_node")
    elif limit and max(nodes * each, used) > limit * NEARLY_ALL:
        yield warning(f"{told}: few are left for producers", "raise maxclients of Redis, or find who holds so many")
    elif limit:
        yield ok(told)
