"""Checks of settings that go badly together. Each alone is valid, or the application would not have been made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lowkiq.doctor.finding import Verdict, note, problem, warning
from lowkiq.doctor.subject import Patient
from lowkiq.node.lease_keeper import RENEWALS_A_TTL
from lowkiq.transport.connect import reply_patience

#: Seconds that the supervisor gives its nodes, when it is not told otherwise.
SUPERVISORS_DRAIN: Final = 25.0


def drain(patient: Patient) -> Iterator[Verdict]:
    """The supervisor kills nodes by its own clock."""
    told = patient.environment.get("LOWKIQ_DRAIN_TIMEOUT", "")
    try:
        theirs = float(told or SUPERVISORS_DRAIN)
    except ValueError:
        return  # "30s" is the supervisor's to understand; a node's own setting would have refused it
    ours = patient.settings.drain_timeout
    if ours > theirs:
        yield warning(
            f"drain_timeout is {ours:g} s, but lowkiq-supervisor kills its nodes after {theirs:g} s",
            f"set LOWKIQ_DRAIN_TIMEOUT={ours:g}, which both read; or --drain-timeout {ours:g}",
        )


def lease(patient: Patient) -> Iterator[Verdict]:
    """How long a node may be away."""
    ttl = patient.settings.lease_ttl
    patience = reply_patience(ttl)
    if ttl / RENEWALS_A_TTL + patience >= ttl:
        yield note(
            f"lease_ttl is {ttl:g} s: a node that waits for one reply of Redis, up to {patience:g} s, may lose "
            "its shards meanwhile"
        )


def capacity(patient: Patient) -> Iterator[Verdict]:
    """A shard is run by one thread at a time."""
    shards = sum(worker.shards_count for worker in patient.app.workers.values())
    threads = patient.number_of_nodes * patient.settings.threads_per_node
    if patient.app.workers and shards < threads:
        yield note(f"{shards} shards for {threads} threads: at most {shards} batches run at a time, the others idle")


def payloads(patient: Patient) -> Iterator[Verdict]:
    """Redis has a limit of its own."""
    limit = patient.config("proto-max-bulk-len")
    if limit and int(limit) < patient.settings.max_payload_bytes:
        yield problem(
            f"max_payload_bytes is {patient.settings.max_payload_bytes:,}, Redis takes {int(limit):,} bytes at most",
            "lower max_payload_bytes, or raise proto-max-bulk-len of Redis",
        )
