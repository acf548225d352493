"""Examination: all checks by name, and how they are made in bounded time, whatever state Redis is in."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

import redis
from redis.exceptions import NoPermissionError

from lowkiq.doctor import machine_checks, node_checks, queue_checks, redis_checks
from lowkiq.doctor.finding import Check, Finding, Verdict, note, problem, warning
from lowkiq.doctor.subject import Subject

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
    "queues.unserved": queue_checks.unserved,
    "queues.unowned": queue_checks.unowned,
    "queues.late": queue_checks.late,
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
    of_redis = _RedisChecks(subject)
    of_redis.start()
    of_machine = [finding for name, check in OF_MACHINE.items() for finding in _made(name, check, subject)]
    of_redis.join(within)
    return [*of_redis.so_far(within), *of_machine]


class _RedisChecks(threading.Thread):
    """One after the other, until Redis is gone."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(name="lowkiq-doctor", daemon=True)
        self._subject = subject
        self._findings: list[Finding] = []
        self._left = list(OF_REDIS)

    def run(self) -> None:
        for name, check in OF_REDIS.items():
            try:
                found = list(_made(name, check, self._subject))
                is_gone = name == ANSWERS and any(finding.level == "problem" for finding in found)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                found = [_named(name, _gone(error))]
                is_gone = True
            self._findings += found
            self._left.remove(name)
            if is_gone:
                self._findings.append(_named(ANSWERS, note(f"not made: {len(self._left)} checks that need Redis")))
                return

    def so_far(self, within: float) -> list[Finding]:
        """The findings; with a problem, when the checks have not come to their end."""
        left = list(self._left)
        if not self.is_alive():
            return self._findings
        return [*self._findings, _named(ANSWERS, _too_slow(within, left))]


def _made(name: str, check: Check, subject: Subject) -> Iterator[Finding]:
    """A check that fails says so, and the others are made all the same."""
    try:
        for verdict in check(subject):
            yield _named(name, verdict)
    except (redis.ConnectionError, redis.TimeoutError):
        raise
    except NoPermissionError as error:
        yield _named(name, note(f"this Redis user may not look: {error}"))
    except Exception as error:  # noqa: BLE001 (what is ill may be so in ways that nobody has thought of)
        says = f"could not be checked: {type(error).__name__}: {error}"
        if "unknown command" in says:
            yield _named(name, note(says))  # fakeredis, or a proxy
        else:
            yield _named(name, warning(says, "look at it by hand: either the data are broken, or Lowkiq is"))


def _named(name: str, verdict: Verdict) -> Finding:
    return Finding(name, verdict.level, verdict.says, verdict.do)


def _gone(error: Exception) -> Verdict:
    return problem(f"Redis is gone, or hangs, since the last check: {error}", "see its log, and SLOWLOG GET")


def _too_slow(within: float, left: list[str]) -> Verdict:
    return problem(
        f"Redis is too slow to be examined in {within:g} s; not checked: {', '.join(left)}",
        "see its log, and SLOWLOG GET",
    )
