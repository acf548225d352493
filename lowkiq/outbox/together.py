"""What is pushed together once a transaction has committed, by those who keep no outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lowkiq import clock
from lowkiq.errors import LowkiqError, PushFailed
from lowkiq.handlers.retries import loggable
from lowkiq.log import get_logger

logger = get_logger()


class Waiting(NamedTuple):
    """What waits for the commit to be pushed to one queue."""

    queue: str
    ids: Sequence[str]
    push: Callable[[], object]


def push_together(waiting: Iterable[Waiting], push_timeout: float) -> None:
    """
    Pushes to each of these queues. One that fails keeps no other from its turn, unless it has taken `push_timeout`
    seconds by then: the caller is not to wait for each. Raises the first failure, with a note for each further one; the
    log names the jobs, whose change is committed already.
    """
    began, failed = clock.monotonic(), list[LowkiqError]()
    for queue, ids, push in waiting:
        try:
            if failed and clock.monotonic() - began >= push_timeout:
                raise PushFailed(f"not tried, as Redis has not answered within {push_timeout:g} s")
            push()
        except LowkiqError as error:
            failed.append(error)
            if len(failed) > 1:
                failed[0].add_note(f"nor was all pushed to queue {queue}: {error}")
            logger.error(
                "not_pushed", queue=queue, jobs=len(ids), ids=loggable(ids), error=str(error)[:300],
                advice="their transaction has committed, so push them again; an outbox does so by itself",
            )  # fmt: skip
    if failed:
        raise failed[0]
