"""
ThreadDump: what every thread of the node is doing, into the log and a file.

Made from Python frames in the main loop: `faulthandler.register` crashed a busy process within 62 signals when tried.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import structlog

from lowkiq import clock
from lowkiq.admin.nodes import NAMED_IDS, ThreadHealth, name_id
from lowkiq.node.worker_thread import WorkerThread

logger = structlog.get_logger("lowkiq")

#: Files kept: a node that is dumped in a loop must not fill the disk.
KEPT = 20


def dump(workers: Sequence[WorkerThread], state_directory: Path) -> None:
    """Dumps all threads. What can't be written to the file is still in the log."""
    directory = state_directory / "dumps"
    frames = sys._current_frames()
    by_ident = {worker.ident: worker for worker in workers}
    sections = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        job = _describe(by_ident.get(thread.ident))
        logger.warning("thread", name=thread.name, job=job, stack=_short_stack(frame))
        sections.append(f"{thread.name}  {job}\n{_full_stack(frame)}")
    try:
        path = _write(directory, "\n".join(sections))
    except OSError as error:
        logger.error("thread_dump_not_written", directory=str(directory), error=str(error))
    else:
        logger.warning("thread_dump", path=str(path), threads=len(sections))


def job_of(worker: WorkerThread) -> ThreadHealth:
    """The job that a worker thread performs: worker, queue, shard, ids and seconds so far. Never payloads."""
    claim = next((claim for claim in worker.in_hand if claim.running), None)
    batch = claim.running if claim else ()
    if claim is None or not batch:
        return ThreadHealth(name=worker.name)
    return ThreadHealth(
        name=worker.name,
        worker=type(claim.worker).__name__,
        queue=claim.shard.queue,
        shard=claim.shard.index,
        ids=[name_id(job.id) for job in batch[:NAMED_IDS]],
        jobs=len(batch),
        seconds=round(clock.monotonic() - claim.running_since, 3),
    )


def _describe(worker: WorkerThread | None) -> str:
    job = job_of(worker) if worker else None
    if job is None or job.queue is None:
        return "no job"
    return f"{job.worker} of queue {job.queue}, shard {job.shard}, for {job.seconds:.1f} s: {job.jobs} ids {job.ids}"


def _full_stack(frame: FrameType | None) -> str:
    return "".join(traceback.format_stack(frame)) if frame else "  (it has ended)\n"


def _short_stack(frame: FrameType | None) -> list[str]:
    """For the log: innermost first."""
    stack = traceback.extract_stack(frame) if frame else []
    return [f"{Path(entry.filename).name}:{entry.lineno} {entry.name}" for entry in reversed(stack)][:30]


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
