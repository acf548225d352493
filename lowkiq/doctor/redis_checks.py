"""Checks of Redis: is it there, does it keep jobs, is it near and on time, and what does it let this user do?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Final

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from lowkiq import clock
from lowkiq.admin import probes
from lowkiq.admin.alerts.alert import Thresholds
from lowkiq.admin.alerts.redis import CONFIG, alerts_of_redis
from lowkiq.doctor.subject import Subject, Verdict, note, of_alert, ok, problem, warning
from lowkiq.transport.connect import server_name
from lowkiq.transport.errors import UNREACHABLE, advice

#: Seconds by which clocks may differ. perform_in, or at, is absolute, and due by Redis's clock.
CLOCKS_MAY_DIFFER: Final = 1.0
#: Round trips that are measured, and seconds after which it is enough.
PINGS, PINGS_WITHIN = 100, 2.0
#: Seconds of a round trip: more than a local network takes, and what somebody else must have held up.
FAR, HELD_UP = 0.005, 0.1
#: Share of maxclients from which people should know.
NEARLY_ALL: Final = 0.8

#: appendfsync → what may be lost, where that is no alert; "" is for one that may not be read.
FSYNC: Final[Mapping[str, Verdict]] = {
    "everysec": ok("append-only file: at most a second is lost with its machine, nothing with Redis alone"),
    "always": ok("append-only file, synced at each write: nothing is lost"),
    "": ok("append-only file; how often it is synced, this server doesn't tell"),
}


def answers(subject: Subject) -> Iterator[Verdict]:
    """Redis must answer, or there is nothing to examine."""
    where = f"{subject.url} (from {subject.url_source})"
    try:
        probes.ping(subject.caller)
    except RedisError as error:
        yield problem(f"can't use Redis at {where}: {error}", _how_to_reach(subject, error))
    else:
        yield ok(f"Redis answers at {where}")


def _how_to_reach(subject: Subject, error: RedisError) -> str:
    what = advice(error)
    if what and what != UNREACHABLE:
        return what
    if subject.is_embedded:
        return "start lowkiq-supervisor, which runs this Redis; or set LOWKIQ_REDIS_URL to use another"
    if subject.url_source == "the default":
        return "set LOWKIQ_REDIS_URL; or start lowkiq-supervisor here, which without one brings its own Redis"
    return "start Redis there, or set LOWKIQ_REDIS_URL to where it is"


def version(subject: Subject) -> Iterator[Verdict]:
    """Redis must have the commands that scripts need."""
    yield from _alerts(subject, "version") or [ok(server_name(subject.info))]


def role(subject: Subject) -> Iterator[Verdict]:
    """Redis must take writes of all shards, and pass them on to as many replicas as pushes wait for."""
    yield from _alerts(subject, "role")
    yield from _alerts(subject, "replicas")
    if subject.info.get("cluster_enabled") and not subject.caller.is_spread:
        says = "it is one node of Redis Cluster: shards in slots of other nodes can't be reached by this URL"
        yield problem(says, "begin the URL with redis+cluster:// (or rediss+cluster://)")


def persistence(subject: Subject) -> Iterator[Verdict]:
    """Accepted jobs should survive the death of Redis."""
    info, policy = subject.info, subject.config("appendfsync") or ""
    if info.get("aof_enabled") and info.get("aof_last_write_status", "ok") == "ok" and policy != "no":
        yield FSYNC.get(policy, FSYNC[""])
    yield from _alerts(subject, "persistence")


def memory(subject: Subject) -> Iterator[Verdict]:
    """Jobs must not be thrown away, or refused, for want of memory."""
    info = subject.info
    limit, used, policy = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0)), info.get("maxmemory_policy")
    yield from _alerts(subject, "memory")
    if not limit and policy not in {None, "noeviction"}:
        yield note(f"maxmemory-policy is {policy}, which does no harm as long as there is no maxmemory")
    if not limit:
        yield ok(f"{used / 2**20:,.0f} MiB used, no maxmemory")
    elif used <= limit * _thresholds(subject).memory:
        yield ok(f"{used / 2**20:,.0f} of {limit / 2**20:,.0f} MiB used")


def _alerts(subject: Subject, about: str) -> list[Verdict]:
    config = {name: subject.config(name) for name in CONFIG} if about == "persistence" else {}
    alerts = alerts_of_redis(subject.info, _thresholds(subject), config)
    return [of_alert(alert) for alert in alerts if alert.subject == about]


def _thresholds(subject: Subject) -> Thresholds:
    return Thresholds.of(subject.settings)


def clocks(subject: Subject) -> Iterator[Verdict]:
    """A due time is set by this machine's clock and kept by Redis's."""
    offset, error = probes.clock_offset(subject.caller)
    if abs(offset) - error >= CLOCKS_MAY_DIFFER:
        where, when = ("ahead of", "early") if offset > 0 else ("behind", "late")
        says = f"Redis's clock is {abs(offset):,.1f} s {where} this machine's: a perform_in made here is due by as much"
        yield warning(f"{says} too {when}", "run NTP on both: chrony or systemd-timesyncd")
    else:
        yield ok(f"Redis's clock and this machine's agree within {abs(offset) + error:.3f} s")


def latency(subject: Subject) -> Iterator[Verdict]:
    """Each claim and each push pays a round trip."""
    deadline = clock.monotonic() + PINGS_WITHIN
    trips = [probes.ping(subject.caller)]
    while len(trips) < PINGS and clock.monotonic() < deadline:
        trips.append(probes.ping(subject.caller))
    median, worst = statistics.median(trips), max(trips)
    trip = f"round trips: median {median * 1000:.1f} ms, worst {worst * 1000:.1f} ms of {len(trips)}"
    if median > FAR:
        says = f"{trip}: each push waits as long, and a thread starts at most {1 / median:,.0f} slow batches a second"
        yield warning(says, "run nodes and producers beside Redis; push many jobs a call; raise batch_size")
    elif worst > HELD_UP:
        yield note(f"{trip}: something holds up Redis or this machine at times (SLOWLOG GET tells)")
    else:
        yield ok(trip)


def connections(subject: Subject) -> Iterator[Verdict]:
    """There must be enough connections for all nodes."""
    limit, used = int(subject.info.get("maxclients", 0)), int(subject.info.get("connected_clients", 0))
    nodes = subject.number_of_nodes
    needed = nodes * subject.connections_of_a_node
    use = f"{used} of {limit:,} connections are used; {nodes} node{'s' * (nodes > 1)} may need {needed}"
    if limit and needed > limit:
        yield problem(f"{use}: some can't connect", "raise maxclients of Redis, or lower threads_per_node")
    elif limit and max(needed, used) > limit * NEARLY_ALL:
        yield warning(f"{use}: few are left for producers", "raise maxclients of Redis, or find who holds so many")
    elif limit:
        yield ok(use)


def commands(subject: Subject) -> Iterator[Verdict]:
    """Every command that is used, and the keys and channels of the namespace."""
    queue = next(iter(subject.app.workers), "doctor")
    refusals = probes.read_refusals(subject.caller, subject.settings.namespace, queue)
    if refusals.commands or refusals.patterns:
        wanted = [*refusals.patterns, *(f"+{command.lower().replace(' ', '|')}" for command in refusals.commands)]
        what = [*refusals.commands, *(f"what {pattern} stands for" for pattern in refusals.patterns)]
        yield problem(f"this Redis user may not use {', '.join(what)}", f"ACL SETUSER USER {' '.join(wanted)}")
    else:
        yield ok("this Redis user may use every command, key and channel that Lowkiq does")
    if refusals.writes:
        says = f"nothing can be written now: {type(refusals.writes).__name__}: {refusals.writes}"
        yield problem(says, advice(refusals.writes) or "see Redis's log")


def scripts(subject: Subject) -> Iterator[Verdict]:
    """EVAL and SCRIPT LOAD; the scripts of this version, as a node loads them."""
    try:
        flags = probes.load_scripts(subject.caller)
    except ResponseError as error:
        do = advice(error) or "allow EVAL, EVALSHA and SCRIPT LOAD; some proxies know none"
        yield problem(f"scripts can't be run: {error}", do)
        return
    unknown = "this server knows no flags of scripts, so a full memory stops more of them (Redis 7 does)"
    yield ok("scripts run; those that make room also when memory is full") if flags else note(f"scripts run; {unknown}")


def doorbell(subject: Subject) -> Iterator[Verdict]:
    """Publish and subscribe: without them a job waits for the next poll."""
    poll = subject.settings.poll_interval
    try:
        seconds = probes.time_doorbell(subject.caller, subject.settings.namespace)
    except NoPermissionError as error:
        do = f"ACL SETUSER USER +subscribe +publish &{subject.settings.namespace}:bell:*"
        yield warning(f"nodes can't listen for pushes: {error}; jobs then start up to {poll:g} s late", do)
        return
    if seconds is None:
        do = "see whether a proxy stands between, which passes no SUBSCRIBE"
        yield warning(f"what is published is not heard: jobs start up to {poll:g} s late", do)
    else:
        yield ok(f"a push is heard after {seconds * 1000:.1f} ms")
