"""A Debian that systemd boots, in namespaces of its own and without a network but its own."""

from __future__ import annotations

import secrets
import signal
import subprocess
from pathlib import Path

import psutil

from tests.deploy.tools import run
from tests.support import wait_until

#: Seconds for a machine to boot or to halt.
PATIENCE = 120.0


class Machine:
    """Boots a root by systemd-nspawn. What runs in it is what runs on a machine: systemd, its journal, its cgroups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._console = root.with_name("console.log").open("w")
        self._nspawn = subprocess.Popen(
            ["systemd-nspawn", "--quiet", f"--directory={root}", f"--machine=lowkiq-{secrets.token_hex(4)}",
             "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--boot"],
            stdin=subprocess.DEVNULL, stdout=self._console, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.leader = 0

    def __enter__(self) -> Machine:
        self.leader = wait_until(self._first_process, within=PATIENCE)
        wait_until(self._has_booted, within=PATIENCE, every=0.2)
        return self

    def __exit__(self, *_: object) -> None:
        if self._nspawn.poll() is None:
            self._nspawn.send_signal(signal.SIGTERM)  # nspawn asks systemd for an orderly halt
            try:
                self._nspawn.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        self._console.close()

    def run(self, command: str, *, check: bool = True) -> str:
        """Runs a shell's command in there; returns what it says."""
        return self._enter(command, check=check).stdout

    def succeeds(self, command: str) -> bool:
        return self._enter(command, check=False).returncode == 0

    def show(self, unit: str, name: str) -> str:
        return self.run(f"systemctl show --property={name} --value {unit}").strip()

    def _enter(self, command: str, *, check: bool) -> subprocess.CompletedProcess[str]:
        nsenter = f"nsenter --target={self.leader} --mount --uts --ipc --net --pid --cgroup --root --wd".split()
        inside = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "sh", "-ec", command]
        return run([*nsenter, *inside], check=check, timeout=PATIENCE)

    def _first_process(self) -> int:
        assert self._nspawn.poll() is None, Path(self._console.name).read_text()
        below = psutil.Process(self._nspawn.pid).children(recursive=True)
        return next((process.pid for process in below if process.name() == "systemd"), 0)

    def _has_booted(self) -> bool:
        """Degraded will do: in a container a mount or two may fail."""
        told = self._enter("systemctl is-system-running", check=False).stdout.strip()
        return told in {"running", "degraded"}
