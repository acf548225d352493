"""Redis Cluster on this machine: three primaries, each with a replica, that can be killed, promoted, and resharded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import redis

from tests.support import HOST, free_port, wait_until
from tests.transport.kinds.member import Arrangement, Member

SLOTS = 16_384


class RedisCluster(Arrangement):
    """
    Six processes, AOF always. A context manager; `.url` is what Lowkiq takes.

    Args:
        primaries: how many; the slots are dealt evenly.
        replicas: of each of them, 0 or 1.
        node_timeout: seconds after which a primary that is silent is replaced. On a busy machine all are, for two.
    """

    def __init__(self, primaries: int = 3, replicas: int = 1, node_timeout: float = 3.0, *options: str) -> None:
        super().__init__("cluster")
        self._count, self._replicas = primaries, replicas
        self.members = [
            Member(
                self._directory / str(number), free_port(bus=True),
                "--cluster-enabled", "yes", "--cluster-node-timeout", str(int(node_timeout * 1000)),
                "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
                "--appendonly", "yes", "--appendfsync", "always", *options,
            )
            for number in range(primaries * (1 + replicas))
        ]  # fmt: skip

    @property
    def url(self) -> str:
        """All members, so that some may be dead."""
        return "redis+cluster://" + ",".join(f"{HOST}:{member.port}" for member in self.members)

    def _start(self) -> None:
        for member in self.members:
            member.start(wait=False)
        for member in self.members:
            wait_until(member.answers)
        self._introduce()
        wait_until(self.is_well)

    def _members(self) -> list[Member]:
        return self.members

    def client(self) -> redis.RedisCluster:
        return redis.RedisCluster.from_url(f"redis://{HOST}:{self._alive()[0].port}")

    def primaries(self) -> list[Member]:
        """Those that say that they are, and run."""
        return [member for member in self._alive() if _role(member) == "master"]

    def replicas(self) -> list[Member]:
        return [member for member in self._alive() if _role(member) == "slave"]

    def primary_of(self, key: str) -> Member:
        """The primary that has the slot of a key, as the others see it."""
        return self._owner_of(self.slot_of(key))

    def slot_of(self, key: str) -> int:
        return int(self._alive()[0].ask("CLUSTER", "KEYSLOT", key))

    def replica_of(self, primary: Member) -> Member | None:
        """A running replica of it."""
        id = _id(primary)
        ports = [row["port"] for row in _nodes(primary) if row["master"] == id]
        return next((member for member in self._alive() if member.port in ports), None)

    def is_well(self) -> bool:
        """Whether every running member sees all slots served, and every replica follows its primary."""
        try:
            return all(_state(member) for member in self._alive()) and all(
                member.ask("INFO", "replication").get("master_link_status") == "up" for member in self.replicas()
            )
        except redis.RedisError:
            return False

    def kill_primary(self, key: str | None = None) -> Member:
        """kill -9 of a primary (of that key): its replica takes over after node_timeout. Returns who was killed."""
        victim = self.primary_of(key) if key else self.primaries()[0]
        victim.kill()
        return victim

    def restart(self, member: Member) -> None:
        """Starts a killed one again: as a replica, if another has taken over."""
        member.start()

    def fail_over(self, primary: Member | None = None, *, how: str = "") -> Member:
        """
        Promotes the replica of a primary; `how` may be "FORCE" or "TAKEOVER". In order ("") nothing is lost. Returns
        the new primary.
        """
        primary = primary or self.primaries()[0]
        replica = wait_until(lambda: self.replica_of(primary))
        replica.ask("CLUSTER", "FAILOVER", *([how] if how else []))
        wait_until(lambda: _role(replica) == "master")
        return replica

    def move_slot(self, slot: int, target: Member | None = None, *, pause: threading.Event | None = None) -> Member:
        """
        Moves a slot to another primary, key by key as redis-cli does; with `pause`, waits half-way until that is set.
        Returns who has it now.
        """
        source = self._owner_of(slot)
        target = target or next(member for member in self.primaries() if member is not source)
        # Who takes a slot makes itself newer than all that it has heard of. If it has not heard of the one who took a
        # slot before, both are equally new, and each may think the slot the other's, for good.
        wait_until(self._are_agreed_on_epochs, within=60)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(target))
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1 if pause else 100):
            wait_until(partial(_is_done, source, "MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys))
            if pause:
                pause.wait(60)
                pause = None
        for member in [target, source, *self.primaries()]:
            with contextlib.suppress(redis.ResponseError):
                member.ask("CLUSTER", "SETSLOT", slot, "NODE", _id(target))
        return target

    def move_slots(self, count: int, source: Member | None = None, target: Member | None = None) -> list[int]:
        """Moves so many slots, those with keys first. Returns them."""
        source = source or self.primaries()[0]
        with source.client() as client:
            used = {self.slot_of(key.decode()) for key in client.scan_iter(count=1000)}
        slots = sorted(self._slots_of(source), key=lambda slot: slot not in used)[:count]
        for slot in slots:
            self.move_slot(slot, target)
        return slots

    # ── how the members are told of each other ──────────────────────────────────────────────────────────────────────

    def _introduce(self) -> None:
        first, *others = self.members
        for number, member in enumerate(self.members[: self._count]):
            low, high = SLOTS * number // self._count, SLOTS * (number + 1) // self._count - 1
            member.ask("CLUSTER", "ADDSLOTSRANGE", low, high)
        for number, member in enumerate(self.members):
            member.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for member in others:
            first.ask("CLUSTER", "MEET", HOST, member.port)
        wait_until(lambda: all(len(_nodes(member)) == len(self.members) for member in self.members))
        for number, member in enumerate(self.members[self._count :]):
            primary = _id(self.members[number % self._count])
            wait_until(lambda member=member, primary=primary: _is_told(member, "CLUSTER", "REPLICATE", primary))

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member.is_running]

    def _owner_of(self, slot: int) -> Member:
        def find() -> Member | None:
            for asked in self._alive():
                for low, high, owner, *_ in _ask(asked, "CLUSTER SLOTS"):
                    if low <= slot <= high:
                        return next((member for member in self._alive() if member.port == owner[1]), None)
            return None

        owner: Member = wait_until(find)
        return owner

    def _are_agreed_on_epochs(self) -> bool:
        told = [{row["id"]: row["epoch"] for row in _nodes(member)} for member in self._alive()]
        return all(each == told[0] for each in told)

    def _slots_of(self, member: Member) -> Iterator[int]:
        for low, high, owner, *_ in _ask(member, "CLUSTER SLOTS"):
            if owner[1] == member.port:
                yield from range(low, high + 1)


def _ask(member: Member, command: str) -> list[Any]:
    with member.client() as client:
        client.set_response_callback(command, lambda reply, **_: reply)
        reply: list[Any] = client.execute_command(*command.split())
        return reply


def _is_told(member: Member, *command: Any) -> bool:
    try:
        member.ask(*command)
    except redis.ResponseError:  # it has not heard of the other yet
        return False
    return True


def _is_done(member: Member, *command: Any) -> bool:
    """Not while the cluster is down."""
    try:
        member.ask(*command)
    except redis.exceptions.ClusterDownError:
        return False
    except redis.ResponseError as error:
        if "CLUSTERDOWN" not in str(error):
            raise
        return False
    return True


def _id(member: Member) -> str:
    return str(member.ask("CLUSTER", "MYID"))


def _role(member: Member) -> str:
    try:
        return str(member.ask("INFO", "replication")["role"])
    except redis.RedisError:
        return "gone"


def _state(member: Member) -> bool:
    told = str(member.ask("CLUSTER", "INFO"))
    return "cluster_state:ok" in told and f"cluster_slots_ok:{SLOTS}" in told


def _nodes(member: Member) -> list[dict[str, Any]]:
    rows = []
    with member.client() as client:
        client.set_response_callback("CLUSTER NODES", lambda reply, **_: reply)
        text = client.execute_command("CLUSTER", "NODES").decode()
    for line in text.splitlines():
        id, address, flags, master, _, _, epoch, *_ = line.split()
        port = int(address.partition("@")[0].rpartition(":")[2])
        rows.append({
            "id": id, "port": port, "flags": flags.split(","), "master": None if master == "-" else master,
            "epoch": int(epoch),
        })  # fmt: skip
    return rows
