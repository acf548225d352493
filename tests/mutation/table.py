"""
Mutants of Python: Lowkiq with one plausible mistake in one of its modules, each of which a named test finds.

Each .txt here is of one room. A line "@ FILE TESTS" says of which file the mutants behind it are, and what finds them.
Each is a line that says what goes wrong; the tests that find it, indented, where these are others; the text that is
taken out, after "- ", which is in its file once; and what stands in its place, after "+ ", nothing if there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """A mistake, and the tests that find it."""

    room: str
    says: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        return ROOT / self.file

    def source(self) -> str:
        """The file's text with the mistake in it. Raises ValueError if that has no place there, or several."""
        return once(self.path.read_text(), self.before, self.after, self.file)


def once(source: str, text: str, instead: str, file: str) -> str:
    """A source with one text in place of another. Raises ValueError unless the other is in it once."""
    if source.count(text) != 1:
        raise ValueError(f"{text!r} is {source.count(text)} times in {file}")
    return source.replace(text, instead)


def read_all() -> list[Mutant]:
    return [
        mutant for path in sorted(Path(__file__).parent.glob("*.txt")) for mutant in read(path.stem, path.read_text())
    ]


def read(room: str, text: str) -> Iterator[Mutant]:
    """Those of a room. Raises ValueError for what is not written as it should be."""
    file, usual = "", list[str]()
    for entry in text.split("\n\n"):
        says, tests, parts = "", list[str](), {"-": list[str](), "+": list[str]()}
        for line in entry.strip("\n").split("\n"):
            if line.startswith("@ "):
                file, *usual = line[2:].split()
            elif line[:2].rstrip() in parts:
                parts[line[:1]].append(line[2:])
            elif line.startswith("  "):
                tests += line.split()
            elif says:
                raise ValueError(f"{room}: {says}: what is {line!r}?")
            else:
                says = line
        if says:
            yield Mutant(room, says, file, "\n".join(parts["-"]), "\n".join(parts["+"]), tuple(tests or usual))
