"""Redis with Sentinel on this machine: a primary, two replicas, and three sentinels that replace it."""

from __future__ import annotations

from pathlib import Path

import redis

from tests.support import BUDGET, HOST, free_port, wait_until
from tests.transport.kinds.member import Arrangement, Member

SERVICE = "lowkiq-test"


class SentinelMember(Member):
    """A sentinel; it keeps its state in its own configuration."""

    def __init__(self, directory: Path, port: int, primary_port: int, down_after: float, quorum: int) -> None:
        super().__init__(directory, port)
        (directory / "sentinel.conf").write_text(
            f"port {port}\nbind {HOST}\ndir {directory}\n"
            f"sentinel monitor {SERVICE} {HOST} {primary_port} {quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} {int(down_after * 1000)}\n"
            f"sentinel failover-timeout {SERVICE} 5000\nsentinel parallel-syncs {SERVICE} 2\n"
        )

    def _arguments(self) -> list[str]:
        return [str(self.directory / "sentinel.conf"), "--sentinel"]


class RedisSentinel(Arrangement):
    """
    Three servers (AOF always) and three sentinels. A context manager; `.url` is what Lowkiq takes.

    Args:
        down_after: seconds after which a silent primary is replaced.
    """

    def __init__(self, replicas: int = 2, sentinels: int = 3, down_after: float = 1.0, *options: str) -> None:
        super().__init__("sentinel")
        first = free_port()
        usual = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0", *options)
        self.servers = [Member(self._directory / "0", first, *usual)]
        for number in range(1, 1 + replicas):
            directory = self._directory / str(number)
            self.servers.append(Member(directory, free_port(), "--replicaof", HOST, str(first), *usual))
        self.sentinels = [
            SentinelMember(self._directory / f"sentinel{number}", free_port(), first, down_after, sentinels // 2 + 1)
            for number in range(sentinels)
        ]

    @property
    def url(self) -> str:
        """All sentinels, so that some may be dead."""
        sentinels = ",".join(f"{HOST}:{member.port}" for member in self.sentinels)
        return f"redis+sentinel://{sentinels}/{SERVICE}/0"

    def _start(self) -> None:
        for member in self.servers:
            member.start()
        wait_until(lambda: len(self.replicas()) == len(self.servers) - 1)
        for member in self.sentinels:
            member.start()
        wait_until(self.is_well)

    def _members(self) -> list[Member]:
        return [*self.sentinels, *self.servers]

    def client(self) -> redis.Redis:
        return self.primary().client()

    def primary(self) -> Member:
        """The one that the sentinels name, once it runs and says the same."""

        def find() -> Member | None:
            for sentinel in self.sentinels:
                if sentinel.is_running and (address := sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)):
                    port = int(address[1])
                    named = next(member for member in self.servers if member.port == port)
                    return named if named.is_running and _info(named).get("role") == "master" else None
            return None

        found: Member = wait_until(find)
        return found

    def replicas(self) -> list[Member]:
        return [
            member
            for member in self.servers
            if member.is_running and (info := _info(member)).get("role") == "slave"
            and info.get("master_link_status") == "up"
        ]  # fmt: skip

    def is_well(self) -> bool:
        """Whether the sentinels know each other and all servers."""
        try:
            return all(
                int(told["num-slaves"]) == len(self.servers) - 1
                and int(told["num-other-sentinels"]) == len(self.sentinels) - 1
                and "down" not in told["flags"]
                for told in map(_told, self.sentinels)
            )
        except redis.RedisError:
            return False

    def kill_primary(self) -> Member:
        """kill -9 of the primary: a replica takes over after `down_after`. Returns who was killed."""
        victim = self.primary()
        victim.kill()
        return victim

    def restart(self, member: Member) -> None:
        """Starts a killed one again; the sentinels make it a replica if another has taken over."""
        member.start()

    def fail_over(self, within: float = BUDGET) -> Member:
        """
        Has the sentinels replace a healthy primary, which is demoted. Returns the new one, once all of them name it.

        Raises:
            TimeoutError: they have given that up.
        """
        old = self.primary()
        self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)
        wait_until(lambda: all(_named(sentinel) != old.port for sentinel in self.sentinels), within=within)
        return self.primary()


def _info(member: Member) -> dict[str, str]:
    try:
        told: dict[str, str] = member.ask("INFO", "replication")
    except redis.RedisError:
        return {}
    return told


def _named(sentinel: Member) -> int:
    return int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


def _told(sentinel: Member) -> dict[str, str]:
    flat = sentinel.ask("SENTINEL", "MASTER", SERVICE)
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
