"""
ThreadDump: what every thread of the node is doing, into the log and a file.

Made from Python frames in the main loop: `faulthandler.register` crashed a busy process within 62 signals when tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import linecache
import os
import re
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from lowkiq import clock
from lowkiq.admin.beats.health import EVENT_LOOP, NAMED_IDS, ThreadHealth, name_id
from lowkiq.admin.words import plural, printable
from lowkiq.codec import error_text
from lowkiq.handlers.performer import Performer
from lowkiq.log import get_logger
from lowkiq.node.job_thread import JobThread
from lowkiq.node.leases.claim_in_hand import Batch, ClaimInHand
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.pool import Pool
from lowkiq.node.tasks.feeder import Feeder
from lowkiq.node.tasks.loop_claim import TaskBatch
from lowkiq.version import VERSION

logger = get_logger()

#: What calls a worker's perform.
_CALLERS = {Performer.perform.__code__, Performer._call_and_check.__code__, ThreadClaim.perform.__code__}
#: Files kept: a node that is dumped in a loop must not fill the disk.
KEPT = 20
#: Frames that are shown of one stack: of a deeper one those at its two ends. Characters of a name, and of an error.
MOST_FRAMES, NAME_CHARS, ERROR_CHARS = 200, 200, 300
#: Frames of a stack that the log gets.
LOGGED_FRAMES = 30
#: For how long a job has run, as it is described.
_SECONDS = re.compile(r"for [0-9.]+ s: ")

#: Frames with their lines at that moment, the innermost first.
Stack = Sequence[tuple[FrameType, int | None]]


def dump(workers: Sequence[JobThread], state_directory: Path, node: str) -> str:
    """
    Dumps all threads, the busy ones first. What can't be written to the file is still in the log, and returned. What
    can't be shown of a thread or a task says so in its place: all that is looked at here is other people's.
    """
    directory = state_directory / "dumps"
    before = {worker.ident: _job(worker) for worker in workers}
    frames = sys._current_frames()
    # All at once: a frame that has returned meanwhile knows its callers no more, and its thread is at another job.
    stacks = {ident: [(entry, entry.f_lineno) for entry in _outwards(frame)] for ident, frame in frames.items()}
    jobs_of = {worker.ident: _then(before[worker.ident], _job(worker)) for worker in workers}
    loops = _loops(stacks.values())
    by_ident = {worker.ident: worker for worker in workers}
    threads = [
        (thread, by_ident.get(thread.ident), stacks.get(thread.ident or 0, [])) for thread in threading.enumerate()
    ]
    idle = [thread.name for thread, worker, stack in threads if worker and _is_idle(worker, stack)]
    sections = [_shown(_head, node, workers)]
    for thread, worker, stack in sorted(threads, key=lambda row: not (row[1] and row[1].in_hand)):
        if not (worker and worker.name in idle):
            sections.append(_shown(_thread, thread, jobs_of.get(thread.ident, "no job"), stack))
    if idle:
        logger.warning("threads_idle", names=idle)
        sections.append(f"{len(idle)} wait for jobs: {', '.join(idle)}\n")
    jobs = {
        batch.task: _describe(_health_of(EVENT_LOOP, claim, batch))
        for worker in workers
        for claim, batch in worker.batches
        if isinstance(batch, TaskBatch) and batch.task
    }
    sections += [_shown(_tasks, loop, jobs) for loop in [*loops, *_loops_of(jobs, loops)]]
    text = "\n".join(sections)
    try:
        path = _write(directory, text)
    except OSError as error:
        logger.error("thread_dump_not_written", directory=str(directory), error=str(error))
    else:
        logger.warning("thread_dump", path=str(path), threads=len(threads))
    return text


def _shown(show: Callable[..., str], *what: Any) -> str:
    """A part of a dump; the code of whatever it looks at may raise."""
    try:
        return show(*what)
    except BaseException as error:  # noqa: BLE001 (it is whoever's, and a look ends nobody)
        return f"(this can't be shown: {error_text(error)[:ERROR_CHARS]})\n"


def _job(worker: JobThread) -> str:
    return _shown(lambda: _describe(health_of_thread(worker)))


def _then(before: str, after: str) -> str:
    """The job that a stack is of, or both between which it was read."""
    is_same = _SECONDS.sub("", before) == _SECONDS.sub("", after)
    return before if is_same else f"{before}; when its stack had been read: {after}"


def _thread(thread: threading.Thread, job: str, stack: Stack) -> str:
    name = _shown(lambda: printable(str(thread.name), NAME_CHARS))
    logger.warning("thread", thread_name=name, job=job, frames=_short(stack))
    return f"{name}  {job}\n{_full_stack(stack)}"


def _head(node: str, workers: Sequence[JobThread]) -> str:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    feeders = [worker for worker in workers if isinstance(worker, Feeder)]
    threads = [worker for worker in workers if worker not in feeders]
    busy = f"{sum(thread.busy for thread in threads)} of {len(threads)} threads busy" if threads else ""
    tasks = f"{sum(feeder.busy for feeder in feeders)} tasks" if feeders else ""
    memory = psutil.Process().memory_info().rss / 2**20
    return "  ".join(filter(None, [f"node {node}", f"Lowkiq {VERSION}", now, f"{memory:,.0f} MiB", busy, tasks])) + "\n"


def _is_idle(worker: JobThread, stack: Stack) -> bool:
    """Returns whether a thread only waits to be rung: its stack says nothing else."""
    return not worker.in_hand and any(entry.f_code is Pool.rest.__code__ for entry, _ in stack)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _loops(stacks: Iterable[Stack]) -> list[asyncio.AbstractEventLoop]:
    """The event loops that run in this process, found by the frames that run them."""
    found: dict[int, asyncio.AbstractEventLoop] = {}
    for stack in stacks:
        for entry, _ in stack:
            if entry.f_code.co_name in {"run", "run_forever", "run_until_complete"}:
                with contextlib.suppress(BaseException):  # a local variable may be anything, called self
                    runner = entry.f_locals.get("self")
                    loop = runner.get_loop() if isinstance(runner, asyncio.Runner) else runner
                    if isinstance(loop, asyncio.AbstractEventLoop):
                        found[id(loop)] = loop
    return list(found.values())


def _loops_of(
    tasks: Iterable[asyncio.Task[Any]], known: Iterable[asyncio.AbstractEventLoop]
) -> list[asyncio.AbstractEventLoop]:
    """Those of tasks that are not known yet."""
    ids = {id(loop) for loop in known}
    return list({id(loop): loop for task in tasks if id(loop := task.get_loop()) not in ids}.values())


def _tasks(loop: asyncio.AbstractEventLoop, jobs: Mapping[asyncio.Task[Any], str]) -> str:
    try:
        tasks = asyncio.all_tasks(loop)
    except RuntimeError:  # they change faster than they can be read
        return f"{loop!r}: its tasks can't be read now\n"
    return "".join(_shown(_task, task, jobs.get(task)) for task in tasks)


def _task(task: asyncio.Task[Any], job: str | None) -> str:
    name = printable(task.get_name(), NAME_CHARS)
    return f"task {name}  {job or _shown(repr, task.get_coro())}\n{_shown(_awaited, task)}"


def _awaited(task: asyncio.Task[Any]) -> str:
    """Where a task is, as far in as its coroutines await each other: its own stack has the outermost one only."""
    frames: list[tuple[FrameType, int | None]] = []
    inner: Any = task.get_coro()
    while (frame := getattr(inner, "cr_frame", None)) is not None and len(frames) < MOST_FRAMES:
        frames.append((frame, frame.f_lineno))
        inner = inner.cr_await
    return _formatted(frames)


def _formatted(frames: Sequence[tuple[FrameType, int | None]]) -> str:
    """Frames, the outermost first, with their lines, as far as these can be read: a module may come from anywhere."""
    for has_lines in (True, False):
        with contextlib.suppress(Exception):
            rows = [
                traceback.FrameSummary(
                    frame.f_code.co_filename, line, frame.f_code.co_name, lookup_line=False,
                    line=linecache.getline(frame.f_code.co_filename, line or 0, frame.f_globals) if has_lines else "",
                )
                for frame, line in frames
            ]  # fmt: skip
            return "".join(traceback.format_list(rows))
    return "  (its frames can't be read)\n"


def health_of_thread(worker: JobThread) -> ThreadHealth:
    """The batch that a thread runs; of one that runs none, its name."""
    running = [] if isinstance(worker, Feeder) else [_health_of(worker.name, *row) for row in worker.batches]
    return next(iter(running), ThreadHealth(name=worker.name))


def healths_of_tasks(feeder: Feeder, most: int) -> list[ThreadHealth]:
    """The batches of the event loop that have run for longest."""
    batches = sorted(feeder.batches, key=lambda row: row[1].running_since)[:most]
    return [_health_of(EVENT_LOOP, claim, batch) for claim, batch in batches]


def _health_of(name: str, claim: ClaimInHand, batch: Batch) -> ThreadHealth:
    """The job that runs: worker, queue, shard, ids and seconds so far. Never payloads."""
    jobs, progress, to_stop_since, now = batch.running, batch.progress, batch.to_stop_since, clock.monotonic()
    return ThreadHealth(
        name=name,
        worker=type(claim.worker).__name__,
        queue=claim.shard.queue,
        shard=claim.shard.index,
        ids=[name_id(job.id) for job in jobs[:NAMED_IDS]],
        jobs=len(jobs),
        seconds=round(now - batch.running_since, 3),
        progress=progress.share if progress else None,
        note=progress.note if progress else "",
        to_stop_seconds=None if to_stop_since is None else round(now - to_stop_since, 3),
        pid=batch.pid,
    )


def _describe(job: ThreadHealth | None) -> str:
    if job is None or job.queue is None:
        return "no job"
    ids = f"{plural(job.jobs, 'id')} {job.ids}"
    return f"{job.worker} of queue {job.queue}, shard {job.shard}, for {job.seconds:.1f} s: {ids}"


def _full_stack(stack: Stack) -> str:
    """Without the way of a worker thread to its job, which is always the same; of a deep one the two ends."""
    if not stack:
        return "  (it has ended)\n"
    own = next((at for at, (entry, _) in enumerate(stack) if entry.f_code in _CALLERS), 0)
    rows = list(reversed(stack[:own] if own else stack))
    left_out = len(rows) - MOST_FRAMES
    if left_out <= 0:
        return _formatted(rows)
    first = MOST_FRAMES // 4
    return f"{_formatted(rows[:first])}  [{left_out:,} frames left out]\n{_formatted(rows[first + left_out :])}"


def short_stack(frame: FrameType | None) -> list[str]:
    """For the log: innermost first."""
    return _short([(entry, entry.f_lineno) for entry in itertools.islice(_outwards(frame), LOGGED_FRAMES)])


def _short(stack: Stack) -> list[str]:
    return [
        f"{Path(entry.f_code.co_filename).name}:{line} {entry.f_code.co_name}" for entry, line in stack[:LOGGED_FRAMES]
    ]


def _write(directory: Path, text: str) -> Path:
    """
    A new file that only we can read, in a directory that is only ours: nobody can have put a link in its place. The
    state directory itself may be open to others, as mounted volumes are.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"dump-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{secrets.token_hex(4)}.txt"
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(opened)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{directory} is open to others: remove it, or set LOWKIQ_STATE_DIR")
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=opened)
        with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        _remove_oldest(opened)
    finally:
        os.close(opened)
    return directory.resolve() / name


def _remove_oldest(directory: int) -> None:
    # The names begin with the time, so they sort by age.
    dumps = sorted(name for name in os.listdir(directory) if name.startswith("dump-") and name.endswith(".txt"))
    for name in dumps[:-KEPT]:
        os.unlink(name, dir_fd=directory)
