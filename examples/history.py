"""
Histories of file trees: what changed, in order, and what it must add up to.

Reads them from a recorded file or from a git repository. Knows nothing of Lowkiq or Redis.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

#: Bytes an id may have, Lowkiq's own limit; a longer path is named by a hash.
MAX_NAME_BYTES = 512

#: Highest sequence number: who has seen which is kept in a bitmap, of 16 MiB at this bound.
MAX_SEQ = 2**27 - 1

#: A name must survive a terminal, a tab-separated file and UTF-8: what can't is written %XX, as in a URL.
#: Bytes that are not UTF-8 arrive here as surrogates.
UNSAFE = re.compile("[%\x00-\x1f\x7f\udc80-\udcff]")

#: Prints each commit against its first parent, whatever a user's settings tell git to hide or to add.
WHOLE_LOG = (
    *("-c", "log.diffMerges=first-parent"),
    *("log", "--first-parent", "-m", "--root", "--reverse", "--format=", "--raw", "-z"),
    *("--no-renames", "--no-abbrev", "--no-relative", "--ignore-submodules=none", "--no-show-signature"),
)


class HistoryError(Exception):
    """A history that can't be read; the message says why and what to do."""


class Change(NamedTuple):
    """One change of one path; `blob` is None where the path was deleted."""

    seq: int
    name: str
    blob: str | None


def name_of(path: bytes) -> str:
    """
    The job id of a path: the path itself, with `%`, control characters and bytes that are not UTF-8 as `%XX`.

    `urllib.parse.unquote_to_bytes` turns it back. Only a name over MAX_NAME_BYTES can't be turned back: it is
    cut, and ends in `%~` and the SHA-256 of the path, so that two long paths never share a name.
    """
    text = path.decode("utf-8", "surrogateescape")
    name = UNSAFE.sub(lambda odd: f"%{ord(odd[0]) & 0xFF:02X}", text)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    tail = "%~" + hashlib.sha256(path).hexdigest()
    return name.encode()[: MAX_NAME_BYTES - len(tail)].decode("utf-8", "ignore") + tail


def add_up(changes: list[Change]) -> dict[str, str]:
    """The tree that the changes leave: name → blob."""
    tree: dict[str, str] = {}
    for change in changes:
        if change.blob is None:
            tree.pop(change.name, None)
        else:
            tree[change.name] = change.blob
    return tree


# Recorded histories


def read_changes(path: Path) -> list[Change]:
    """The changes in a file of lines `{"seq", "path", "blob" | null}`, gzipped or not, in the file's order."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            return [_change(line, f"{path.name}, line {number}") for number, line in enumerate(lines, 1)]
    except (OSError, EOFError) as error:
        raise HistoryError(f"can't read {path}: {error}") from error


def read_tree(path: Path) -> dict[str, str]:
    """The tree in a file of lines `path<TAB>blob`: name → blob."""
    try:
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise HistoryError(f"can't read {path}: {error}") from error
    tree = {}
    for number, line in enumerate(lines, 1):
        name, tab, blob = line.rpartition(b"\t")
        if not (name and tab and blob):
            raise HistoryError(f"{path.name}, line {number}: expected a path, a tab and a blob")
        tree[name_of(name)] = blob.decode("ascii", "replace")
    return tree


def _change(line: bytes, where: str) -> Change:
    try:
        event = json.loads(line)
        seq, path, blob = event["seq"], event["path"], event["blob"]
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f'{where}: expected {{"seq", "path", "blob"}}, and got {line[:80]!r}') from error
    if type(seq) is not int or not 0 <= seq <= MAX_SEQ:
        raise HistoryError(f"{where}: seq must be a whole number from 0 to {MAX_SEQ}, and is {seq!r}")
    if not isinstance(path, str) or not path:
        raise HistoryError(f"{where}: path must be a non-empty string, and is {path!r}")
    if blob is not None and (not isinstance(blob, str) or not blob):
        raise HistoryError(f"{where}: blob must be a non-empty string, or null for a deletion, and is {blob!r}")
    try:
        return Change(seq, name_of(path.encode("utf-8", "surrogateescape")), blob)
    except UnicodeEncodeError as error:
        raise HistoryError(f"{where}: path is no text: {path!r}") from error


# git


@dataclass(frozen=True)
class GitHistory:
    """
    The history of a git repository's HEAD along first parents: the changes of each commit against its first
    parent add up exactly to HEAD's tree, merges included. Links and submodules count as files. Of a shallow
    clone, the oldest commit counts as the one that added everything.
    """

    repo: Path
    head: str

    @classmethod
    def of(cls, repo: Path) -> GitHistory:
        """The history of `repo`, held at the commit that HEAD names now."""
        _git(repo, "rev-parse", "--git-dir")
        try:
            head = _git(repo, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except HistoryError as error:
            raise HistoryError(f"{repo} has no commits yet: make one, or name another repository") from error
        return cls(repo, head.decode().strip())

    def changes(self) -> list[Change]:
        """Every change of every path, oldest first, numbered from 1."""
        fields = iter(_fields(self.repo, *WHOLE_LOG, self.head))
        # Two fields a change: `:100644 100644 <old blob> <new blob> M`, and the path.
        return [
            Change(seq, name_of(path), None if status.endswith(b"D") else status.split()[3].decode())
            for seq, (status, path) in enumerate(zip(fields, fields, strict=True), 1)
        ]

    def tree(self) -> dict[str, str]:
        """HEAD's tree: name → blob."""
        entries = (entry.split(b"\t", 1) for entry in _fields(self.repo, "ls-tree", "-rz", "--full-tree", self.head))
        return {name_of(path): about.split()[2].decode() for about, path in entries}


def _fields(repo: Path, *arguments: str) -> list[bytes]:
    """Fields of what git prints, each of which ends with a zero byte."""
    return _git(repo, *arguments).split(b"\0")[:-1]


def _git(repo: Path, *arguments: str) -> bytes:
    """Output of git for `repo`, even where a hook has pointed git at another one."""
    environment = {name: value for name, value in os.environ.items() if name not in {"GIT_DIR", "GIT_WORK_TREE"}}
    command = ["git", "-C", str(repo), *arguments]
    try:
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout  # noqa: S603 - no shell
    except FileNotFoundError as error:
        raise HistoryError("git is not installed, or not on PATH") from error
    except subprocess.CalledProcessError as error:
        complaint = error.stderr.decode(errors="replace").strip()
        raise HistoryError(f"can't read the history of {repo}: {complaint}") from error
