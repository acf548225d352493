"""LonePush: the push of one job, on the shortest way to the socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hiredis import pack_command

from lowkiq.job import EncodedJob, Pushed, shard_of
from lowkiq.queue.call import Caller
from lowkiq.queue.shard import Shard
from lowkiq.transport.connection import Line


class LonePush:
    """
    What most pushes are: one job with the default score and due time. All of its command but the id and the payload is
    packed beforehand. A producer that has slept finds its caches cold, and each call that is not made, in Python or in
    C, takes microseconds off the way of a job to an idle node.
    """

    def __init__(self, caller: Caller, line: Line, shards: Sequence[Shard]) -> None:
        self._caller = caller
        self._line = line
        self._shards = shards
        #: Commands up to the id, by the index of the shard.
        self._heads: dict[int, bytes] = {}

    def push(self, job: EncodedJob) -> Pushed | None:
        """None if it is not such a job, or Redis refuses it: the usual way makes it possible, or tells why not."""
        if job.score != "" or job.perform_in != "":
            return None
        id, payload = job.id, job.payload
        index = shard_of(id, len(self._shards))
        head = self._heads.get(index) or self._pack_head(index)
        packed = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (head, len(id), id, len(payload), payload)
        (reply,) = self._line.send([packed], 1)
        return None if isinstance(reply, Exception) else Pushed(*reply)

    def _pack_head(self, index: int) -> bytes:
        command: tuple[Any, ...] = self._caller.command_of(self._shards[index].push([]))
        _, words = pack_command(command).split(b"\r\n", 1)  # how many there are comes first
        head = self._heads[index] = b"*%d\r\n%b" % (len(command) + 2, words)
        return head
