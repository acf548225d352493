"""Checks of what Redis lets this user do, and of what it does just now."""

from __future__ import annotations

from collections.abc import Iterator

from redis.exceptions import NoPermissionError, ResponseError

from lowkiq.admin import probes
from lowkiq.doctor.finding import Verdict, note, ok, problem, warning
from lowkiq.doctor.subject import Patient

#: How Redis words that it writes nothing now → what to do.
MENDING = {
    "OutOfMemory": "raise maxmemory of Redis, or run nodes to work the queues off: they go on",
    "OOM": "raise maxmemory of Redis, or run nodes to work the queues off: they go on",
    "ReadOnly": "give the URL of the primary",
    "MISCONF": "see Redis's log: its disk may be full, or memory too short to fork (vm.overcommit_memory=1)",
    "NOREPLICAS": "bring its replicas back, or lower min-replicas-to-write",
    "CLUSTERDOWN": "mend the cluster: CLUSTER INFO",
}


def commands(patient: Patient) -> Iterator[Verdict]:
    """Every command that is used, and the keys and channels of the namespace."""
    queue = next(iter(patient.app.workers), "doctor")
    refusals = probes.read_refusals(patient.caller, patient.settings.namespace, queue)
    if refusals.commands or refusals.patterns:
        wanted = [*refusals.patterns, *(f"+{command.lower().replace(' ', '|')}" for command in refusals.commands)]
        what = [*refusals.commands, *(f"what {pattern} stands for" for pattern in refusals.patterns)]
        yield problem(f"this Redis user may not use {', '.join(what)}", f"ACL SETUSER USER {' '.join(wanted)}")
    else:
        yield ok("this Redis user may use every command, key and channel that Lowkiq does")
    if refusals.writes:
        do = next((do for code, do in MENDING.items() if code in refusals.writes), "see Redis's log")
        yield problem(f"nothing can be written now: {refusals.writes}", do)


def scripts(patient: Patient) -> Iterator[Verdict]:
    """EVAL and SCRIPT LOAD; the scripts of this version, as a node loads them."""
    try:
        flags = probes.load_scripts(patient.caller)
    except ResponseError as error:
        yield problem(f"scripts can't be run: {error}", "allow EVAL, EVALSHA and SCRIPT LOAD; some proxies know none")
        return
    if flags:
        yield ok("scripts run; those that make room also when memory is full")
    else:
        yield note(
            "scripts run; this server knows no flags of scripts, so a full memory stops more of them (Redis 7 does)"
        )


def doorbell(patient: Patient) -> Iterator[Verdict]:
    """Publish and subscribe: without them a job waits for the next poll."""
    poll = patient.settings.poll_interval
    try:
        seconds = probes.hear(patient.caller, patient.settings.namespace)
    except NoPermissionError as error:
        yield warning(
            f"nodes can't listen for pushes: {error}; jobs then start up to {poll:g} s late",
            f"ACL SETUSER USER +subscribe +publish &{patient.settings.namespace}:bell:*",
        )
        return
    if seconds is None:
        yield warning(
            f"what is published is not heard: jobs start up to {poll:g} s late",
            "see whether a proxy stands between, which passes no SUBSCRIBE",
        )
    else:
        yield ok(f"a push is heard after {seconds * 1000:.1f} ms")
