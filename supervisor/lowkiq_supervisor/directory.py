"""
The directory whose code nodes run. Where each deploy has one of its own, a link leads to the one that is to run. A
process that was started by the link stays in what it led to then, and has the link's name in PWD, if a shell told it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from lowkiq.log import get_logger

log = get_logger("supervisor")

#: Directories above the current one that a link may lead to, and entries beside each in which links are looked for.
MOST_ABOVE, MOST_ENTRIES = 3, 1_000


def linked(environ: Mapping[str, str]) -> dict[str, str]:
    """PWD, for nodes to enter what it leads to by then, if it names the current directory by a link; else nothing."""
    named = Path(environ.get("PWD", ""))
    try:
        is_linked = named.is_absolute() and named.samefile(Path.cwd()) and named != named.resolve()
    except OSError:
        return {}
    return {"PWD": str(named)} if is_linked else {}


def enter(directory: str) -> None:
    """Makes it the current directory of this process."""
    try:
        os.chdir(directory)
    except OSError as error:
        log.warning("directory_not_entered", directory=directory, error=str(error), hint="the code from before is run")


class Links(NamedTuple):
    """Links that lead to the current directory, or one above it, where nobody has named it by one."""

    found: tuple[tuple[Path, Path], ...] = ()

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Links:
        """Those of this process."""
        try:
            here = Path.cwd()
        except OSError:
            return cls()
        return cls() if linked(environ) else cls(tuple(_links_to([here, *here.parents][:MOST_ABOVE])))

    def moved(self) -> str:
        """A sentence, if one of them leads elsewhere by now: this process, and its nodes, stay where they are."""
        for link, directory in self.found:
            now = Path(os.path.realpath(link))
            if now != directory and now.is_dir():
                return (
                    f"{link} leads to {now} by now, and nodes run what is in {directory}: they follow the link if the "
                    f"supervisor is started with PWD={link}, as a shell does after `cd {link}`"
                )
        return ""


def _links_to(directories: list[Path]) -> Iterator[tuple[Path, Path]]:
    for directory in directories:
        for beside in directory.parents[:2]:
            try:
                yield from (
                    (entry, directory)
                    for entry in islice(beside.iterdir(), MOST_ENTRIES)
                    if entry.is_symlink() and entry.resolve() == directory
                )
            except OSError:
                continue
