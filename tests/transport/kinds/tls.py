"""Redis behind TLS: a server with a certificate of a CA that is made for the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis

from tests.support import HOST, free_port, lacks, wait_until
from tests.transport.kinds.member import Arrangement, Member


class RedisTls(Arrangement):
    """A server that speaks only TLS. A context manager; `.url` is what Lowkiq takes; `.ca`, `.certificate`, `.key`."""

    def __init__(self, *options: str, password: str = "", clients_need_certificates: bool = False) -> None:
        super().__init__("tls")
        self.ca = self._directory / "ca.crt"
        self.certificate, self.key = self._directory / "redis.crt", self._directory / "redis.key"
        self.port = free_port()
        client = {"ssl": True, "ssl_ca_certs": str(self.ca)}
        if password:
            options = ("--requirepass", password, *options)
            client["password"] = password
        if clients_need_certificates:
            client |= {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}
        self.server = Member(
            self._directory / "server", self.port, "--port", "0", "--tls-port", str(self.port),
            "--tls-ca-cert-file", str(self.ca), "--tls-cert-file", str(self.certificate),
            "--tls-key-file", str(self.key), "--tls-auth-clients", "yes" if clients_need_certificates else "no",
            *options, client=client,
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"rediss://{HOST}:{self.port}/0?ssl_ca_certs={self.ca}"

    def _start(self) -> None:
        self._certify()
        self.server.start(wait=False)
        wait_until(self.server.answers)

    def _members(self) -> list[Member]:
        return [self.server]

    def client(self) -> redis.Redis:
        return self.server.client()

    def _certify(self) -> None:
        make = _openssl(self._directory)
        make("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=Lowkiq test CA",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
        make("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}", "-keyout", "redis.key",
             "-out", "redis.csr")  # fmt: skip
        (self._directory / "san").write_text(f"subjectAltName=IP:{HOST},DNS:localhost\n")
        make("x509", "-req", "-in", "redis.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", "2", "-extfile", "san", "-out", "redis.crt")  # fmt: skip


def _openssl(directory: Path) -> Callable[..., None]:
    found = shutil.which("openssl")
    if found is None:
        lacks("no openssl on PATH: install it")

    def run(*arguments: str) -> None:
        subprocess.run([found, *arguments], cwd=directory, check=True, capture_output=True, timeout=60)

    return run
