"""Checkpoints: what of them can be kept, and what Redis says to it."""

from __future__ import annotations

from redis.exceptions import RedisError

from lowkiq.errors import CheckpointFailed
from lowkiq.settings import Settings

#: Seconds after which one is sent again whose job is on its way to another shard.
AGAIN = 0.05


def check(checkpoint: bytes, settings: Settings) -> None:
    """Raises ValueError for one that is too large."""
    if len(checkpoint) > settings.max_payload_bytes:
        most = f"max_payload_bytes is {settings.max_payload_bytes:,}"
        raise ValueError(f"the checkpoint has {len(checkpoint):,} bytes, {most}: store it elsewhere, keep a reference")


def error_of(result: object) -> CheckpointFailed | None:
    """The error that Redis's answer stands for."""
    if result is True:
        return None
    if isinstance(result, RedisError):
        return CheckpointFailed(f"Redis may not have it: {type(result).__name__}: {result}"[:300])
    return CheckpointFailed("this run is over for Redis: another node may run the job by now")
