"""Functions: gives those of a module that is loaded already the code that they have with a mistake in it."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from tests.mutation.table import ROOT, Mutant
from tests.support import FREEZE, UNFREEZE


class Functions:
    """All that there are now. To import a module anew instead would cost a second for each mutant."""

    def __init__(self) -> None:
        self._of_file: dict[str, list[FunctionType]] = defaultdict(list)
        UNFREEZE()  # else it knows nothing of what was imported for the tests
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename.startswith(str(ROOT)):
                self._of_file[found.__code__.co_filename].append(found)
        FREEZE()

    def patch(self, mutant: Mutant) -> None:
        """Raises ValueError for a mistake that is in no function, or in none that is loaded."""
        path = str(mutant.path)
        old, new = (list(codes(compile(text, path, "exec"))) for text in (mutant.path.read_text(), mutant.source()))
        if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
            of_name = {code.co_qualname: code for code in new}
            new = [of_name.get(code.co_qualname, code) for code in old]
        at = {(code.co_qualname, code.co_firstlineno): index for index, code in enumerate(old)}
        changed = 0
        for function in self._of_file[path]:
            index = at.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if index is not None and meaning(old[index]) != meaning(new[index]):
                function.__code__ = new[index]
                changed += 1
        if not changed:
            raise ValueError(f"{mutant.says}: it changes no function of {path} that its tests have loaded")


def codes(code: CodeType) -> Iterator[CodeType]:
    """That of a module's functions and classes, and of what is in these."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from codes(const)


def meaning(code: CodeType) -> tuple[Any, ...]:
    """What a code does, wherever it stands."""
    consts = tuple(meaning(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts
