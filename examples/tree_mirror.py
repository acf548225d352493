"""
Rebuilds a tree of files from its history, one job a path: a proof that Lowkiq keeps order whatever dies.

Each path is an id, each change of it a payload `{"seq", "blob"}` with the score seq. The worker applies changes to a
copy of the tree, as they come, and counts two things that delivery can do to them: replays (a change seen before,
which at-least-once delivery allows) and out-of-order (a change never seen, yet older than one applied to its path,
which must not happen).

    lowkiq-supervisor --nodes 4 -r examples.tree_mirror &
    python -m examples.tree_mirror feed --repo .
    python -m examples.tree_mirror check --repo .
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import redis
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.history import Change, GitHistory, HistoryError, read_changes, read_tree
from examples.tree_copy import Copy, Counts
from lowkiq import Lowkiq, Worker
from lowkiq.errors import LowkiqError

#: Changes a push sends: a few round trips for a whole history, and a progress bar that still moves.
BULK = 500

#: Seconds a batch takes on top, half before and half after it is applied: for watching, and for tests that kill.
DELAY = float(os.environ.get("TREE_MIRROR_DELAY", "0"))

app = Lowkiq()


@app.worker
class TreeMirror(Worker):
    """Applies the changes of each path to the copy, oldest first."""

    shards_count = 24
    batch_size = 10

    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        """Apply a batch: one round trip, whole or not at all."""
        time.sleep(DELAY / 2)
        Copy(app.redis()).apply(payloads_by_id)
        time.sleep(DELAY / 2)


# Feeding and checking


def push(changes: list[Change], pushed: Callable[[int], object] = lambda _: None) -> None:
    """Push the changes in their order, and call `pushed` with the number of each bulk."""
    for bulk in _bulks(changes):
        TreeMirror.perform_async(
            [
                {"id": change.name, "payload": {"seq": change.seq, "blob": change.blob}, "score": change.seq}
                for change in bulk
            ]
        )
        pushed(len(bulk))


def _bulks(changes: list[Change]) -> Iterator[list[Change]]:
    return (changes[start : start + BULK] for start in range(0, len(changes), BULK))


def left() -> int:
    """Jobs that wait or run."""
    queue = app.metrics()[TreeMirror.queue_name]
    return queue.length + queue.busy


@dataclass(frozen=True)
class Verdict:
    """Comparison of the copy with the tree that it should be."""

    expected: dict[str, str]
    copy: dict[str, str]
    counts: Counts
    left: int
    buried: int

    @classmethod
    def on(cls, expected: dict[str, str]) -> Verdict:
        """Compare what is in Redis now."""
        queue = app.metrics()[TreeMirror.queue_name]
        copy = Copy(app.redis())
        return cls(expected, copy.tree(), copy.counts(), queue.length + queue.busy, queue.morgue_length)

    @property
    def missing(self) -> list[str]:
        """Paths that the copy lacks."""
        return sorted(self.expected.keys() - self.copy.keys())

    @property
    def extra(self) -> list[str]:
        """Paths that the copy should not have."""
        return sorted(self.copy.keys() - self.expected.keys())

    @property
    def wrong(self) -> list[str]:
        """Paths with another blob than they should have."""
        return sorted(name for name, blob in self.expected.items() if self.copy.get(name, blob) != blob)

    @property
    def right(self) -> bool:
        """True if order was kept and every path is as it should be."""
        return self.copy == self.expected and not self.counts.out_of_order

    def show(self, console: Console) -> None:
        """Print it, with a few of the paths that are not right."""
        table = Table(show_header=False, box=None)
        table.add_column(style="dim")
        table.add_column(justify="right")
        wrong = {"missing": self.missing, "extra": self.extra, "wrong": self.wrong}
        rows = {
            "paths": len(self.expected),
            **{f"paths {how}": len(names) for how, names in wrong.items()},
            "changes applied": self.counts.applied,
            "replays (allowed)": self.counts.replays,
            "out-of-order (must be 0)": self.counts.out_of_order,
            "jobs left": self.left,
            "jobs in the morgue": self.buried,
        }
        for name, value in rows.items():
            table.add_row(name, f"{value:,}")
        console.print(table)
        for how, names in wrong.items():
            for name in names[:5]:
                console.print(f"{how}: {name}", markup=False, soft_wrap=True)


def progress(console: Console) -> Progress:
    """A bar that counts changes."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


# The command line

cli = typer.Typer(
    help="Rebuild a tree of files from its history, and check it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
out, err = Console(highlight=False), Console(stderr=True, highlight=False)

Repo = Annotated[Path | None, typer.Option(help="A git repository: its HEAD, along first parents.")]


@cli.command()
def feed(
    file: Annotated[Path | None, typer.Argument(help='Lines of {"seq", "path", "blob"}, gzipped or not.')] = None,
    repo: Repo = None,
) -> None:
    """Push every change of a history, in order."""
    source = _one_of(file, repo)
    changes = GitHistory.of(source).changes() if repo else read_changes(source)
    with progress(out) as bar:
        task = bar.add_task("pushed", total=len(changes))
        push(changes, lambda count: bar.advance(task, count))


@cli.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="Lines of path, tab, blob.")] = None,
    repo: Repo = None,
) -> None:
    """Exit 0 only if every path of the copy is right, and nothing was applied out of order."""
    source = _one_of(file, repo)
    verdict = Verdict.on(GitHistory.of(source).tree() if repo else read_tree(source))
    verdict.show(out)
    if verdict.right:
        out.print("The copy is right.")
        return
    if verdict.left:
        out.print("Jobs are left: let the nodes finish, and check again.")
    out.print("The copy is NOT right.")
    raise typer.Exit(1)


@cli.command()
def reset() -> None:
    """Forget the copy. A history fed again would else count as replays, and another one not be applied."""
    Copy(app.redis()).forget()


def _one_of(file: Path | None, repo: Path | None) -> Path:
    source = file or repo
    if source is None or (file and repo):
        raise typer.BadParameter("name either a FILE or a repository with --repo PATH")
    return source


def main() -> None:
    """Run a command, and say what is wrong in one line where something is."""
    try:
        cli()
    except (HistoryError, LowkiqError, redis.RedisError) as error:
        err.print(f"error: {error}", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
