"""SuspectPerformer: has helper processes perform suspects of a worker whose other batches run in the node."""

from __future__ import annotations

from lowkiq.errors import ProcessDied
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures
from lowkiq.job import Job
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.helpers.helper import HelperEnded
from lowkiq.node.helpers.helper_performer import HelperPerformer, claim_here
from lowkiq.node.runtime import Runtime
from lowkiq.queue.claims import load_all
from lowkiq.queue.shard import Crashed


class SuspectPerformer(HelperPerformer):
    """
    As for a worker with isolation="process", but the death of the process is counted as that of a node is. Where no
    process can be had, or it can't begin, since `on_server_init` can't be called twice on a machine, say, the node
    performs it as any other job.
    """

    def __init__(self, in_node: Performer, runtime: Runtime, server: ForkServer) -> None:
        super().__init__(type(in_node.worker), runtime, server)
        self._in_node = in_node
        self.worker = in_node.worker

    def perform(self, batch: list[Job]) -> Failures | None:
        """Performs a batch of one. Returns what became of it, None when it is done; raises nothing."""
        self.live = self._in_node.live
        return super().perform(batch)

    def _after(self, batch: list[Job], ended: HelperEnded) -> Failures | None:
        if not ended.has_begun:
            claim_here().move_into_node()
            return self._perform_in_node(batch)
        if ended.error is None:
            return self._orphaned(batch, ended)
        return Failures(crashed=[Crashed(job.id, self._max_crashes) for job in batch])

    def _unheard(self, batch: list[Job], ended: HelperEnded) -> bool:
        here = self._in_node
        if not ended.has_begun and not any(load_all(job, here.load, here.check_id) for job in batch):
            return here.buried(batch, ProcessDied(batch[0].error or ""))
        return super()._unheard(batch, ended)

    def _failed(self, batch: list[Job], error: BaseException | str) -> Failures:
        return self._in_node._failed(batch, error) if not self._has_slow_hooks else super()._failed(batch, error)

    def _perform_in_node(self, batch: list[Job]) -> Failures | None:
        here = self._in_node
        if spoiled := [row for job in batch for row in load_all(job, here.load, here.check_id)]:
            return Failures(spoiled=spoiled)
        return here.perform(batch)
