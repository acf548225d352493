"""
Images built by buildah, which reads Dockerfiles as Docker does, on a Debian base; and their entry points as process 1
of namespaces of their own, as a container runtime would start them.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.deploy.tools import run
from tests.support import wait_until

#: What images of registries have; one made from nothing has none.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What a runtime does before it hands over: the root read-only, with these mounts. $1 is the root, $2 the volumes.
SETUP = """
root=$1; volumes=$2; shift 2
mount --bind "$root" "$root"
for volume in $volumes; do mount --bind "${volume%%:*}" "$root${volume#*:}"; done
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
exec "$@"
"""


class Store:
    """Images and containers of this test run alone."""

    def __init__(self, directory: Path) -> None:
        self._buildah = ["buildah", f"--root={directory}/root", f"--runroot={directory}/run"]
        # Layers are mounted where the kernel lets them, and copied where it doesn't, as in many containers.
        mounted = subprocess.run([*self._buildah, "--storage-driver=overlay", "info"], capture_output=True, check=False)
        self._buildah += ["--storage-driver=vfs" if mounted.returncode else "--storage-driver=overlay"]

    def __call__(self, *words: str | Path, timeout: float = 600) -> str:
        return run([*self._buildah, *words], timeout=timeout).stdout.strip()

    def base(self, root: Path, name: str) -> None:
        """An image of that root, without byte code: as registries' images of Python are."""
        container = self("from", "--quiet", "scratch").splitlines()[-1]
        self("add", "--quiet", container, root, "/")
        for cache in Path(self("mount", container)).glob("usr/lib/python3*/**/__pycache__"):
            shutil.rmtree(cache)
        self("config", "--env", f"PATH={PATH}", container)
        self("commit", "--quiet", "--rm", "--format=docker", container, name)

    def build(self, context: Path, name: str, *, file: Path | None = None, **arguments: str) -> None:
        words = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        words += [f"--file={file}"] if file else []
        # Of one date, as far as that is the builder's: SOURCE_DATE_EPOCH for the rest.
        words += ["--timestamp=0", "--build-arg=SOURCE_DATE_EPOCH=0"]
        self("bud", "--isolation=chroot", "--format=docker", "--pull-never", *words, "--tag", name, context)

    def config(self, name: str) -> Mapping[str, Any]:
        told = json.loads(self("inspect", "--type=image", name))
        found: Mapping[str, Any] = told["Docker"]["config"]
        return found

    def root(self, name: str) -> Path:
        """The image's files, in a container's own layer."""
        return Path(self("mount", self("from", "--quiet", "--pull-never", name).splitlines()[-1]).splitlines()[-1])

    def clear(self) -> None:
        self("rm", "--all")
        self("rmi", "--all", "--force")


class Container:
    """One run of an image: read-only, without a network, rights or capabilities; volumes are the only way out."""

    def __init__(
        self,
        store: Store,
        image: str,
        log: Path,
        *arguments: str,
        volumes: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._config = store.config(image)
        self._root = store.root(image)
        self._environment = dict(word.split("=", 1) for word in self._config["Env"]) | dict(environment or {})
        self.log = log
        mounts = {self._anonymous(place): place for place in self._config.get("Volumes") or {}} | dict(volumes or {})
        for place in mounts.values():
            (self._root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        command = [*self._config["Entrypoint"], *(arguments or self._config["Cmd"])]
        inside = self._as_its_user(command)
        unshare = ["unshare", "--fork", "--kill-child", "--mount", "--pid", "--ipc", "--uts", "--net"]
        pairs = " ".join(f"{source}:{place}" for source, place in mounts.items())
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*unshare, "sh", "-ec", SETUP, "sh", self._root, pairs, "chroot", self._root, *inside],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def first(self) -> psutil.Process:
        def found() -> list[psutil.Process]:
            assert self.process.poll() is None, self.log.read_text()
            return psutil.Process(self.process.pid).children()

        process: psutil.Process = wait_until(found)[0]
        return process

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Runs a command as `docker exec` does."""
        inside = ["nsenter", f"--target={self.first.pid}", "--mount", "--pid", "--ipc", "--uts", "--net", "--root"]
        return run([*inside, *self._as_its_user(command)], check=False, timeout=60)

    def health(self) -> int:
        kind, *command = self._config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.run(command).returncode

    def stop(self) -> int:
        """The image's stop signal to process 1, and its exit code."""
        self.first.send_signal(signal.Signals[self._config["StopSignal"]])
        return self.process.wait(60)

    def volume(self, place: str) -> Path:
        """Path outside of a volume that nobody has named."""
        return self.log.with_name(f"{self.log.stem}-volume{place.replace('/', '-')}")

    def _as_its_user(self, command: Sequence[str]) -> list[str]:
        uid, gid = self._config["User"].split(":")
        rights = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        return ["setpriv", *rights, "env", "-i", "-C", self._config["WorkingDir"], *variables, *command]

    def _anonymous(self, place: str) -> Path:
        """A volume that nobody has named begins as a copy of what the image has there."""
        run(["cp", "--archive", f"{self._root}{place}", self.volume(place)])
        return self.volume(place)
