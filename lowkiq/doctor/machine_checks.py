"""Checks of this machine (the state directory, limits, versions) and of settings."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final

import psutil
import redis.utils

from lowkiq.doctor.subject import OTHER_FILES, Subject, Verdict, note, ok, problem, warning
from lowkiq.environment import (
    OPEN_TO_OTHERS,
    state_directory,
    too_long_for_a_socket,
)
from lowkiq.node.lease_keeper import RENEWALS_A_TTL
from lowkiq.process.patched import cure, patched_by
from lowkiq.process.place import CONTROL_SOCKET, EMBEDDED_SOCKET, runtime_directory
from lowkiq.transport.connect import reply_patience
from lowkiq.variables import misspelt
from lowkiq.version import VERSION

#: Free bytes below which an append-only file is in danger, and below which it can't go on.
LITTLE_SPACE, NO_SPACE = 1 << 30, 100 << 20
#: Seconds that the supervisor gives its nodes, unless it is set otherwise.
SUPERVISORS_DRAIN: Final = 25.0
#: File systems that don't outlive a restart.
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def state_dir(subject: Subject) -> Iterator[Verdict]:
    """The directory of the supervisor's socket, its dumps and the embedded Redis."""
    path = state_directory(subject.environment)
    yield _access(path)
    longest = f"{path.resolve()}{EMBEDDED_SOCKET if subject.is_embedded else CONTROL_SOCKET}"
    if too_long := too_long_for_a_socket(longest):
        yield problem(too_long, "set LOWKIQ_STATE_DIR to a shorter path")


def _access(path: Path) -> Verdict:
    elsewhere = "set LOWKIQ_STATE_DIR to a directory that this user may write to"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        parent = next(parent for parent in path.resolve().parents if parent.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            return ok(f"state directory {path}: made when a supervisor starts")
        return warning(f"state directory {path} can't be made in {parent}: no supervisor can start here", elsewhere)
    except OSError as error:
        return warning(f"state directory {path}: {error.strerror}", "set LOWKIQ_STATE_DIR to another one")
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        says = f"state directory {path} can't be written by this user: no supervisor can start here"
        return warning(says, elsewhere)
    if mode & OPEN_TO_OTHERS:
        return warning(f"others can write into the state directory {path}", f"chmod go-w {path}")
    return ok(f"state directory {path}")


def embedded_redis(subject: Subject) -> Iterator[Verdict]:
    """Jobs of the embedded Redis should outlive a restart."""
    path = state_directory(subject.environment).resolve()
    if not subject.is_embedded or not path.exists():
        return
    runtime = runtime_directory(subject.environment)
    says = f"the embedded Redis keeps its jobs in {path}"
    if runtime and path == Path(runtime).resolve():
        do = "StateDirectory=lowkiq and Environment=LOWKIQ_STATE_DIR=%S/lowkiq in the unit, or set REDIS_URL"
        yield problem(f"{says}, which systemd empties when the service stops", do)
    elif (kind := _file_system(path)) in IN_MEMORY:
        do = "set LOWKIQ_STATE_DIR to a directory on a disk, or set REDIS_URL"
        yield problem(f"{says}, a {kind}: they are lost when the machine restarts", do)


def _file_system(path: Path) -> str:
    """The kind of the file system that it is on, "" where that is not known."""
    kinds = {partition.mountpoint: partition.fstype for partition in psutil.disk_partitions(all=True)}
    return next((kinds[str(place)] for place in (path, *path.parents) if str(place) in kinds), "")


def disk(subject: Subject) -> Iterator[Verdict]:
    """The embedded Redis writes there; else only dumps go there."""
    path = state_directory(subject.environment).resolve()
    place = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(place).free
    space, do = f"{free / 2**20:,.0f} MiB free at {place}", "make room, or set LOWKIQ_STATE_DIR to a larger disk"
    if free > (LITTLE_SPACE if subject.is_embedded else NO_SPACE):
        yield ok(space)
    elif free > NO_SPACE or not subject.is_embedded:
        yield warning(f"{space}, which is little", do)
    else:
        yield problem(f"{space}: the embedded Redis soon can't write", do)


def open_files(subject: Subject) -> Iterator[Verdict]:
    """Each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed, threads = subject.connections_of_a_node + OTHER_FILES, subject.settings.threads_per_node
    says = f"a process may open {'any number of' if soft == resource.RLIM_INFINITY else f'{soft:,}'} files"
    if soft != resource.RLIM_INFINITY and soft < needed:
        says += f"; a node of {threads} threads needs {needed:,}, and its jobs their own"
        yield warning(says, f"ulimit -n {max(4096, needed * 2)} (up to {hard:,}); LimitNOFILE= in a unit")
    else:
        yield ok(says)


def software(_: Subject) -> Iterator[Verdict]:
    """Versions, for whoever reads a report."""
    hiredis = version("hiredis") if redis.utils.HIREDIS_AVAILABLE else "missing"
    yield ok(f"Lowkiq {VERSION}, Python {python_version()}, redis-py {version('redis')}, hiredis {hiredis}")
    if not redis.utils.HIREDIS_AVAILABLE:
        yield warning("hiredis is missing: replies are parsed in Python, much slower", "pip install 'redis[hiredis]'")
    if library := patched_by():
        yield problem(f"the application has {library} patch threads: no node would run", cure(library))


def containers(subject: Subject) -> Iterator[Verdict]:
    """Kubernetes, too, kills a node that drains for long."""
    if subject.environment.get("KUBERNETES_SERVICE_HOST"):
        limit = "terminationGracePeriodSeconds of the pod, 30 s if nothing is said, must be longer"
        yield note(f"drain_timeout is {subject.settings.drain_timeout:g} s: {limit}")


# Below: settings that go badly together; each alone is valid, or the application would not have been made.


def variables(subject: Subject) -> Iterator[Verdict]:
    """A variable that is misspelt counts for nothing, and nothing else says so."""
    for name, meant in misspelt(subject.environment).items():
        yield warning(f"nothing reads {name}", f"did you mean {meant}?")


def drain(subject: Subject) -> Iterator[Verdict]:
    """The supervisor kills nodes by its own clock."""
    text = subject.environment.get("LOWKIQ_DRAIN_TIMEOUT", "")
    try:
        theirs = float(text or SUPERVISORS_DRAIN)
    except ValueError:
        return  # "30s" is the supervisor's to understand; a node's own setting would have refused it
    ours = subject.settings.drain_timeout
    if ours > theirs:
        says = f"drain_timeout is {ours:g} s, but lowkiq-supervisor kills its nodes after {theirs:g} s"
        yield warning(says, f"set LOWKIQ_DRAIN_TIMEOUT={ours:g}, which both read; or --drain-timeout {ours:g}")


def lease(subject: Subject) -> Iterator[Verdict]:
    """A node that waits for one reply should not lose its leases."""
    ttl = subject.settings.lease_ttl
    patience = reply_patience(ttl)
    if ttl / RENEWALS_A_TTL + patience >= ttl:
        wait = f"a node that waits for one reply of Redis, up to {patience:g} s, may lose its shards meanwhile"
        yield note(f"lease_ttl is {ttl:g} s: {wait}")


def capacity(subject: Subject) -> Iterator[Verdict]:
    """A worker's `concurrency` bounds the threads that its shards can use; without one they can use all."""
    bounds = [
        worker.concurrency and worker.shards_count * worker.concurrency for worker in subject.app.workers.values()
    ]
    batches = sum(bound for bound in bounds if bound)
    threads = subject.number_of_nodes * subject.settings.threads_per_node
    if bounds and all(bounds) and batches < threads:
        yield note(f"concurrency allows {batches} batches at a time for {threads} threads: the others idle")


def payloads(subject: Subject) -> Iterator[Verdict]:
    """Redis has a limit of its own."""
    limit, ours = int(subject.config("proto-max-bulk-len") or 0), subject.settings.max_payload_bytes
    if limit and limit < ours:
        says = f"max_payload_bytes is {ours:,}, Redis takes {limit:,} bytes at most"
        yield problem(says, "lower max_payload_bytes, or raise proto-max-bulk-len of Redis")
