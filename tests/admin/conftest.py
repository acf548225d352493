"""A queue of three shards, as most tests of admin use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.admin.jobs.previews import Page, Previews
from lowkiq.job import shard_of
from lowkiq.queue.shard import Failure
from tests.queue.shard_driver import PAST, ShardDriver

SHARDS = 3


def push(work: type[Worker], ids: Iterable[Any], **fields: Any) -> None:
    jobs: list[Any] = [{"id": id, "perform_in": PAST} | fields for id in ids]
    work.perform_async(jobs)


def fail(shard: ShardDriver, delay: float = 1000.0, **errors: int | str) -> None:
    """Pushes jobs that then fail, with that error or so many times; each is due a second after the one before."""
    shard.push_all(*((id, b"p", 1.0, PAST) for id in errors))
    lease = shard.lease()
    lease.claim()
    failed = []
    for number, (id, how) in enumerate(errors.items()):
        retry_count, error = (how, f"error {how}") if isinstance(how, int) else (0, how)
        failed.append(Failure(id, retry_count, delay + number, error))
    lease.settle(failed=failed)
    lease.release("lease")


def ids(page: Page) -> list[str]:
    return [job.id for job in page.jobs]


def pages(previews: Previews, view: str, **options: Any) -> list[Page]:
    """All of them, from the first cursor to the last."""
    found = [previews.page(view, **options)]
    while found[-1].next is not None:
        found.append(previews.page(view, cursor=found[-1].next, **options))
        assert len(found) <= 1_000, "they do not come to an end"
    return found


@pytest.fixture
def previews(app: Lowkiq) -> Previews:
    return Previews(app.caller, app.shards("q", SHARDS), load_error=str, max_id_bytes=512)


@pytest.fixture
def alone(app: Lowkiq, shard: ShardDriver) -> Previews:
    """Previews of the queue whose only shard is `shard`."""
    return Previews(app.caller, [shard.shard], load_error=str, max_id_bytes=512)


@pytest.fixture
def work(app: Lowkiq) -> type[Worker]:
    return app.worker(queue_name="q", shards_count=SHARDS)(lambda _: None)


@pytest.fixture
def shards(app: Lowkiq) -> list[ShardDriver]:
    return [ShardDriver(app, index=index, shards_count=SHARDS) for index in range(SHARDS)]


@pytest.fixture
def shard_with(shards: list[ShardDriver]) -> Callable[[str], ShardDriver]:
    """Gives the shard of an id."""

    def shard_with(id: str) -> ShardDriver:
        return shards[shard_of(id.encode(), SHARDS)]

    return shard_with
