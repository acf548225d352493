"""Installs the peers, each into an environment of its own; what can't be had is told, and missing from the tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.catalogue import HOME

REQUIREMENTS = Path(__file__).parent / "requirements"
#: Seconds for one package manager.
LIMIT = 300.0


def main() -> None:
    """Installs what is not there yet, or not as asked for."""
    for requirements in sorted(REQUIREMENTS.glob("*.txt")):
        _once(requirements, HOME / requirements.stem, _python)
    _once(REQUIREMENTS / "package.json", HOME / "npm", _node)
    _once(REQUIREMENTS / "gems", HOME / "gems", _ruby)


def _once(requirements: Path, home: Path, install: Callable[[Path, Path], str]) -> None:
    """A copy of what was asked for is left when all of it is there."""
    stamp = home / ".installed"
    asked = requirements.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == asked:
        return
    print(f"Installing what {home.name} needs into {home} ...", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    trouble = install(requirements, home)
    if trouble:
        print(f"  not all of it: {trouble}", file=sys.stderr)
    else:
        stamp.write_text(asked, encoding="utf-8")


def _python(requirements: Path, home: Path) -> str:
    pip: list[str | Path] = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return _run(sys.executable, "-m", "venv", home) or _run(*pip, "-r", requirements)


def _node(requirements: Path, home: Path) -> str:
    shutil.copy(requirements, home / "package.json")
    return _run("npm", "install", "--no-audit", "--no-fund", "--silent", cwd=home)


def _ruby(requirements: Path, home: Path) -> str:
    troubles = []
    for line in requirements.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split()
            quiet = ("--no-document", "--conservative", "--install-dir", home)
            troubles.append(_run("gem", "install", *quiet, name, "-v", version, GEM_HOME=str(home)))
    return "; ".join(filter(None, troubles))


def _run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Runs a command; returns its error in a line, or nothing."""
    try:
        result = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not result.returncode:
        return ""
    said = [line for line in result.stderr.splitlines() if line.strip()] or [f"exit code {result.returncode}"]
    return next((line for line in said if line.startswith("ERROR")), said[-1])


if __name__ == "__main__":
    main()
