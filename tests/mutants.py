"""Mutants: Lowkiq with one safeguard taken out of a script. A test of the promise that one of them passes proves nothing."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lowkiq.store import scripts


class Mutant(NamedTuple):
    """A safeguard in a script's file, and what stands in its place."""

    path: str
    safeguard: str
    instead: str


MUTANTS = {
    "no_fence": Mutant("includes/fence.lua", "if owner[1] ~= node or owner[2] ~= epoch then", "if false then"),
    "settle_any_claim": Mutant("settle.lua", "if last_claim == tonumber(ARGV[3]) then", "if true then"),
}


def install(name: str, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """
    Makes every script that is loaded from here on the mutant's; in this process for good, unless a monkeypatch
    takes it back. A client that has loaded its scripts keeps them.
    """
    mutant = MUTANTS[name]
    read = scripts._read

    def mutated(path: str) -> str:
        source = read(path)
        if path != mutant.path:
            return source
        assert mutant.safeguard in source, f"{name} no longer fits {path}"
        return source.replace(mutant.safeguard, mutant.instead)

    (monkeypatch or pytest.MonkeyPatch()).setattr(scripts, "_read", mutated)
