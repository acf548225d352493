"""Clock for processes whose time of day is not the machine's, and can be set while they run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import lacks


class OtherClock:
    """A clock of its own for the processes that are started inside `worn`."""

    def __init__(self, directory: Path, name: str, seconds: float = 0) -> None:
        self._library = directory / "other_clock.so"
        self._file = directory / f"{name}.clock"
        self.set(seconds)
        if not self._library.exists():
            compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
            if compiler is None:
                lacks("no C compiler: another clock can't be made (apt-get install gcc libc6-dev)")
            source = Path(__file__).with_suffix(".c")
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, source], check=True)

    def set(self, seconds: float) -> None:
        """Sets how far it is from the machine's from now on; at no moment is half of that written."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:.0f}")
        new.rename(self._file)

    @contextmanager
    def worn(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(self._library))
            patch.setenv("OTHER_CLOCK", str(self._file))
            yield
