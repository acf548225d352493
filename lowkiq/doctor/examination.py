"""Examination: all checks by name, and how they are made in bounded time, whatever state Redis is in."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

import redis
from redis.exceptions import NoPermissionError

from lowkiq.doctor import machine_checks, node_checks, queue_checks, redis_checks
from lowkiq.doctor.subject import Check, Finding, Subject, checks_of, note, problem, warning
from lowkiq.transport.errors import advice

#: Seconds for all checks of Redis together. One reply may take two (connect.PATIENCE).
REDIS_WITHIN: Final = 15.0

#: Without it there is nothing more to ask of Redis.
ANSWERS: Final = "redis.answers"

#: Those that need Redis.
OF_REDIS: Final[Mapping[str, Check]] = {
    ANSWERS: redis_checks.answers,
    "redis.version": redis_checks.version,
    "redis.role": redis_checks.role,
    "redis.persistence": redis_checks.persistence,
    "redis.memory": redis_checks.memory,
    "redis.clock": redis_checks.clocks,
    "redis.latency": redis_checks.latency,
    "rights.commands": redis_checks.commands,
    "rights.scripts": redis_checks.scripts,
    "rights.doorbell": redis_checks.doorbell,
    "queues.shards_count": queue_checks.shards_count,
    "queues.layout": queue_checks.layouts,
    "queues.readable": queue_checks.readable,
    "queues.unserved": queue_checks.unserved,
    "queues.unowned": queue_checks.unowned,
    "queues.late": queue_checks.late,
    "queues.failing": checks_of("failing queue", "growing morgue"),
    "queues.blocked": checks_of("blocked"),
    "queues.paused": checks_of("paused", "held"),
    "queues.following": checks_of("unsent", "recurring", "dependent"),
    "queues.reshards": queue_checks.reshards,
    "queues.settings": queue_checks.settings,
    "queues.limits": queue_checks.limits,
    "queues.rates": queue_checks.rates,
    "queues.deaths": queue_checks.deaths,
    "nodes.present": node_checks.present,
    "nodes.numbers": node_checks.numbers,
    "nodes.versions": node_checks.versions,
    "nodes.trips": node_checks.trips,
    "nodes.long_jobs": node_checks.long_jobs,
    "nodes.restarts": node_checks.restarts,
    "redis.connections": redis_checks.connections,
    "settings.capacity": machine_checks.capacity,
    "settings.payloads": machine_checks.payloads,
}

OF_MACHINE: Final[Mapping[str, Check]] = {
    "settings.variables": machine_checks.variables,
    "settings.drain": machine_checks.drain,
    "settings.lease": machine_checks.lease,
    "machine.state_dir": machine_checks.state_dir,
    "machine.embedded_redis": machine_checks.embedded_redis,
    "machine.disk": machine_checks.disk,
    "machine.open_files": machine_checks.open_files,
    "machine.containers": machine_checks.containers,
    "machine.software": machine_checks.software,
}


def examine(subject: Subject, within: float = REDIS_WITHIN) -> list[Finding]:
    """All findings. It may leave a thread behind that still waits for Redis."""
    of_redis: list[Finding] = []
    left = list(OF_REDIS)
    thread = threading.Thread(target=_examine_redis, args=(subject, of_redis, left), name="lowkiq-doctor", daemon=True)
    thread.start()
    of_machine = [finding for name, check in OF_MACHINE.items() for finding in _made(name, check, subject)]
    thread.join(within)
    says = f"Redis is too slow to be examined in {within:g} s; not checked: {', '.join(left)}"
    too_slow = [Finding(ANSWERS, *problem(says, "see its log, and SLOWLOG GET"))] if thread.is_alive() else []
    return [*of_redis, *too_slow, *of_machine]


def _examine_redis(subject: Subject, findings: list[Finding], left: list[str]) -> None:
    """Makes one check after the other until Redis is gone; what has not been made is left."""
    for name, check in OF_REDIS.items():
        try:
            found = list(_made(name, check, subject))
            is_gone = name == ANSWERS and any(finding.level == "problem" for finding in found)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            says = f"Redis is gone, or hangs, since the last check: {error}"
            found, is_gone = [Finding(name, *problem(says, "see its log, and SLOWLOG GET"))], True
        findings += found
        left.remove(name)
        if is_gone:
            findings.append(Finding(ANSWERS, *note(f"not made: {len(left)} checks that need Redis")))
            return


def _made(name: str, check: Check, subject: Subject) -> Iterator[Finding]:
    """A check that fails says so, and the others are made all the same."""
    try:
        for verdict in check(subject):
            yield Finding(name, *verdict)
    except (redis.ConnectionError, redis.TimeoutError):
        raise
    except NoPermissionError as error:
        yield Finding(name, *note(f"this Redis user may not look: {error}"))
    except Exception as error:  # noqa: BLE001 (what is ill may be so in ways that nobody has thought of)
        says = f"could not be checked: {type(error).__name__}: {error}"
        do = advice(error) or "look at it by hand: either the data are broken, or Lowkiq is"
        yield Finding(name, *(note(says) if "unknown command" in says else warning(says, do)))  # fakeredis, or a proxy
