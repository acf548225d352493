"""Why: where a job is and why it waits, in one plain sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.nodes import NodeHealth, Running
from lowkiq.admin.reader import JobPreview
from lowkiq.web.owners import Owners
from lowkiq.web.render import words

#: States of a node in which it claims nothing.
_STOPPED = {"quiet": "quiet", "draining": "stopping"}


class Why:
    """
    Explains the places of one id.

    Args:
        places: where the id is.
        ahead: queued jobs of its shard that come before it.
        now: Redis's time.
    """

    def __init__(self, owners: Owners, queue: str, places: Sequence[JobPreview], ahead: int | None, now: float) -> None:
        self._owners = owners
        self._queue = queue
        self._is_claimed = any(job.where == "claim" for job in places)
        self._ahead = ahead
        self._now = now

    def __call__(self, job: JobPreview) -> str:
        """The sentence."""
        match job.where:
            case "claim":
                return self._in_flight(job)
            case "morgue":
                return self._dead(job)
        if job.at > self._now:
            return self._not_due(job)
        return self._due(job)

    def _dead(self, job: JobPreview) -> str:
        return f"In the morgue since {words.moment(job.at)}: nothing runs it until somebody revives it."

    def _not_due(self, job: JobPreview) -> str:
        when = f"Not due until {words.moment(job.at)}, in {words.age(job.at - self._now)}"
        if job.retry_count < 0:
            return f"{when}: it was pushed for then."
        return f"{when}: it failed {words.times(job.retry_count + 1)} and tries again then."

    def _due(self, job: JobPreview) -> str:
        if self._is_claimed:
            return "Its id is in flight; what is queued here follows when that is done."
        shard = self._owners.shard(self._queue, job.shard)
        if shard is None:
            return "Due; nothing is known of its shard yet."
        if not shard.lease_rest:
            return f"Due, but shard {job.shard} has no node: {self._last_owner(shard)}."
        node = self._owners.node(shard.owner)
        if node is not None and (obstacle := self._obstacle(node)):
            return f"Due, but {self._owners.name(shard.owner)}, which has shard {job.shard}, {obstacle}."
        return self._next_in_line(job, shard)

    def _last_owner(self, shard: ShardMetrics) -> str:
        if shard.owner is None:
            return "none has had it so far"
        return f"the lease of the last one, {self._owners.name(shard.owner)}, has run out"

    def _obstacle(self, node: NodeHealth) -> str | None:
        if node.is_late:
            return f"has not been heard of for {words.age(node.beat_age)}"
        if node.state in _STOPPED:
            return f"is {_STOPPED[node.state]}: it takes no new jobs"
        return None

    def _next_in_line(self, job: JobPreview, shard: ShardMetrics) -> str:
        ahead = self._ahead or 0
        before = (
            f"{words.plural(ahead, 'job')} {'is' if ahead == 1 else 'are'} before it" if ahead else "it is the first"
        )
        owner = self._owners.name(shard.owner)
        running = self._owners.running(self._queue, job.shard)
        if running is not None:
            return f"Due; {before} in shard {job.shard}, whose thread performs {_performed(running)}."
        node = self._owners.node(shard.owner)
        if node is not None and node.threads and all(thread.queue is not None for thread in node.threads):
            return f"Due; {before} in shard {job.shard}, and all threads of {owner} are busy with other shards."
        return f"Due; {before} in shard {job.shard} of {owner}."

    def _in_flight(self, job: JobPreview) -> str:
        shard = self._owners.shard(self._queue, job.shard)
        owner = self._owners.name(shard.owner if shard else None)
        if shard is not None and not shard.lease_rest:
            return (
                f"In the hands of {owner}, whose lease has run out: the next node of shard {job.shard} runs it again."
            )
        running = self._owners.running(self._queue, job.shard)
        if running is None:
            return f"Claimed by {owner}: about to be performed, or just done."
        who = f"{self._owners.name(running.node.node)}, thread {words.printable(running.thread.name, 60)}"
        match running.has(job.id):
            case True:
                return f"Performed by {who}, for {words.age(running.seconds)} so far."
            case None:
                return f"Claimed by {who}: performed in the batch of {_performed(running)}, or next."
        return f"Claimed by {who}, and next: the thread performs {_performed(running)}."


def _performed(running: Running) -> str:
    thread = running.thread
    first = words.printable(thread.ids[0], 60) if thread.ids else "a job"
    batch = first if thread.jobs <= 1 else f"{first} and {thread.jobs - 1:,} more"
    return f"{batch} for {words.age(running.seconds)}"
