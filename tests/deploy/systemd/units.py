"""Reads unit files and environment files the way systemd does, as far as ours go."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

SYSTEMD = ROOT / "systemd"


@dataclass
class Unit:
    """A unit file: section → setting → its values, in order."""

    sections: Mapping[str, Mapping[str, list[str]]]

    @classmethod
    def read(cls, path: Path) -> Unit:
        sections: dict[str, dict[str, list[str]]] = {}
        section = ""
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                sections[section] = defaultdict(list)
            elif line and not line.startswith(("#", ";")):
                name, _, value = line.partition("=")
                sections[section][name].append(value)
        return cls(sections)

    def all(self, name: str) -> list[str]:
        return self.sections["Service"][name]

    def one(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    def seconds(self, name: str) -> float:
        return float(self.one(name))

    def environment(self, **specifiers: str) -> dict[str, str]:
        """Variables that Environment= sets, with specifiers such as S replaced."""
        words = [word for line in self.all("Environment") for word in shlex.split(line)]
        return dict(replaced(word, specifiers).split("=", 1) for word in words)

    def command(self, name: str, environment: Mapping[str, str], **specifiers: str) -> list[str]:
        """
        A command line of the unit with its variables replaced, as systemd.service(5) says under "Command lines":
        `${NAME}` is one word wherever it is, `$NAME` as a word is split at spaces, `$$` is a dollar.
        """
        words: list[str] = []
        for word in shlex.split(replaced(self.all(name)[-1], specifiers)):
            if word.startswith("$") and word[1:].isidentifier():
                words += environment.get(word[1:], "").split()
                continue
            for variable, value in environment.items():
                word = word.replace(f"${{{variable}}}", value)  # noqa: PLW2901
            words.append(word.replace("$$", "$"))
        return words


def replaced(text: str, specifiers: Mapping[str, str]) -> str:
    """The text with the specifiers replaced: S is the state directory's parent, i the instance's name."""
    for letter, value in specifiers.items():
        text = text.replace(f"%{letter}", value)
    return text


def read_environment(path: Path, *, commented: bool = False) -> dict[str, str]:
    """The variables of an environment file, or those that it has commented out."""
    found = {}
    for line in path.read_text().splitlines():
        text = line.removeprefix("#") if commented and line.startswith("#") else line
        name, sign, value = text.partition("=")
        if sign and name.replace("_", "").isupper() and " " not in name and (commented == line.startswith("#")):
            found[name] = value
    return found
