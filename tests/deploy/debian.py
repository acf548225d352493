"""Bare Debian roots, made from nothing for the tests that follow the guides to the letter."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.tools import need, need_namespaces, run

#: A minimal system that boots, with what the guides install first; the rest of the guides is done by the tests.
PACKAGES = ("python3", "python3-venv", "redis-server", "systemd", "ca-certificates")
#: How a package installer is set up here, as far as that can be the same elsewhere.
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


def bare_root(directory: Path) -> Path:
    """
    A root of this machine's Debian, made once for all processes of a test run. Copy it, don't change it.

    Args:
        directory: the session's temporary one. LOWKIQ_TEST_ROOTS names one that lasts, which saves the making.
    """
    need_namespaces()
    need("mmdebstrap")
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian":
        pytest.skip("makes a Debian of the same release as this machine's, which is no Debian")
    # Each of the processes that run tests has its own below a common one.
    shared = directory.parent if directory.name.startswith("process-") else directory
    shared = Path(os.environ.get("LOWKIQ_TEST_ROOTS") or shared)
    shared.mkdir(parents=True, exist_ok=True)
    root = shared / "debian"
    with (shared / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "made").exists():
            suite = release["VERSION_CODENAME"]
            include = f"--include={','.join(PACKAGES)}"
            run(["mmdebstrap", "--quiet", "--variant=minbase", include, suite, root, _mirror(suite)], timeout=600)
            _take_over_the_network(root)
            (root / "made").touch()
    return root


def chroot(root: Path, command: str) -> str:
    """Runs a shell's command in there; returns what it says."""
    plain = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    environment = plain | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "EDITOR": "true"}
    inside = ["chroot", str(root), "sh", "-ec", f"cd /root/lowkiq; {command}"]
    # A namespace of its own, so that /proc and /dev go with it.
    mounts = f'mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev; exec "$@"'
    return run(["unshare", "--mount", "sh", "-ec", mounts, "sh", *inside], env=environment, timeout=300).stdout


def _mirror(suite: str) -> str:
    """URL from which this machine gets its packages."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for line in told.splitlines():
        uri, release, component = line.split()
        if release == suite and component == "main" and uri.startswith("http") and "debian" in uri:
            return uri
    return "http://deb.debian.org/debian"


def _take_over_the_network(root: Path) -> None:
    """Names, trusted certificates and pip's settings are as here; paths of this machine are left out."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")  # an installer writes it elsewhere
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy(certificates, root / certificates.relative_to("/"))
    told = run([sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"], check=False).stdout
    lines = ["[global]", "disable-pip-version-check = true", "root-user-action = ignore"]
    for line in told.splitlines():
        name, _, value = line.partition("=")
        setting = name.removeprefix(":env:.").removeprefix("global.")
        value = value.strip("'\"")
        if setting in PIP_SETTINGS and not value.startswith(("file:", "/")):
            lines.append(f"{setting} = {value}")
    (root / "etc/pip.conf").write_text("\n".join(lines) + "\n")
