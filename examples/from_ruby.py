"""
Moves queues of the original Lowkiq for Ruby over, in order: payloads with their scores, due times, retry counts, errors
and the morgue. Stop Ruby's nodes first. It may be killed and run again: what was moved twice merges.

    python -m examples.from_ruby -r shop.jobs --source redis://old:6379/0 --dry-run OrderSync
    python -m examples.from_ruby -r shop.jobs --source redis://old:6379/0 OrderSync Shop::Mails=mails
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec
import redis
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from examples.ruby_queue import RubyJob, RubyQueue, Unreadable, read_payload
from lowkiq import Lowkiq, Worker
from lowkiq.admin.jobs.taking_in import Incoming, take_in
from lowkiq.errors import LowkiqError, SettingsError, unknown_queue
from lowkiq.importing import load_app

#: Jobs that are read, moved and removed at a time.
STEP = 100

out, err = Console(highlight=False), Console(stderr=True, highlight=False)


class Move(NamedTuple):
    """A queue there, and the worker of ours that is to have its jobs."""

    queue: RubyQueue
    worker: type[Worker[Any]]
    app: Lowkiq
    read: Callable[[bytes], Any]
    is_dry: bool

    def run(self, moved: Callable[[int], object]) -> list[str]:
        """Moves all that there is. Returns what was left where it is, and why."""
        left: list[str] = []
        # What nodes had in hand is the oldest of its id. The morgue is last: it does not matter to the order.
        for jobs, is_dead in ((self.queue.in_hand(), False), (self.queue.queued(), False), (self.queue.morgue(), True)):
            while step := list(islice(jobs, STEP)):
                self._step(step, left, is_dead=is_dead)
                moved(len(step))
        return left

    def _step(self, jobs: list[RubyJob], left: list[str], *, is_dead: bool) -> None:
        readable: list[tuple[RubyJob, Incoming]] = []
        for job in jobs:
            try:
                payloads = [(score, self._dumped(payload)) for score, payload in job.payloads]
            except ValueError as error:
                left.append(f"{job.id}: {error}")
            else:
                if payloads:
                    incoming = Incoming(job.id, payloads, job.at, job.retry_count, job.error, is_dead)
                    readable.append((job, incoming))
        if self.is_dry:
            return
        settings = self.app.settings
        take_in(
            self.app.caller,
            self.app.shards(self.worker.queue_name, self.worker.shards_count),
            [incoming for _, incoming in readable],
            max_id_bytes=settings.max_id_bytes,
            max_payload_bytes=settings.max_payload_bytes,
        )
        for job, _ in readable:  # only now: a kill before this moves them once more
            self.queue.remove(job)

    def _dumped(self, payload: bytes) -> bytes:
        dumped = self.worker.codec.dump(self.read(payload))
        return dumped.encode() if isinstance(dumped, str) else dumped


cli = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@cli.command(help=__doc__)
def move(
    queues: Annotated[list[str], typer.Argument(help="Ruby's queue_name, or RUBY=OURS where ours has another.")],
    app: Annotated[str, typer.Option("-r", help="The application that has the workers: MODULE or MODULE:ATTR.")],
    source: Annotated[str, typer.Option(help="The URL of the Redis that Ruby uses.")],
    payloads: Annotated[
        str, typer.Option(help="How Ruby has dumped payloads: marshal, its default, or json.")
    ] = "marshal",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read all, and change nothing.")] = False,
) -> None:
    """Moves queues, one after the other."""
    if payloads not in {"marshal", "json"}:
        raise typer.BadParameter(f"--payloads is {payloads!r}: it may be marshal or json")
    target = load_app(app)
    client = redis.Redis.from_url(source)
    read = read_payload if payloads == "marshal" else _read_json
    left: list[str] = []
    for name in queues:
        ruby, _, ours = name.partition("=")
        move = Move(RubyQueue(client, ruby), _worker(target, ours or ruby), target, read, dry_run)
        if not dry_run:
            move.worker.perform_async([])  # makes the queue known, and refuses another shards_count
        left += [f"{ruby} {line}" for line in _shown(ruby, move)]
    for line in left:
        err.print(f"left where it is: {line}", markup=False, soft_wrap=True)
    if left:
        raise typer.Exit(1)


def _shown(name: str, move: Move) -> list[str]:
    in_hand, queued, dead = move.queue.counts()
    verb = "would move" if move.is_dry else "moves"
    out.print(f"{name}: {verb} {queued:,} queued, {in_hand:,} in hand, {dead:,} in the morgue", markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=out) as bar:
        task = bar.add_task("read" if move.is_dry else "moved", total=in_hand + queued + dead)
        return move.run(lambda count: bar.advance(task, count))


def _worker(app: Lowkiq, queue: str) -> type[Worker[Any]]:
    if queue not in app.workers:
        raise unknown_queue(queue, app.workers)
    return app.workers[queue]


def _read_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise Unreadable(str(error)) from error


def main() -> None:
    """Moves queues, and says what is wrong in one line where something is."""
    try:
        cli()
    except (SettingsError, LowkiqError, redis.RedisError) as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
