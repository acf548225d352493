"""A push that Redis can't take: what is said, and how briefly."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from lowkiq import Lowkiq, PushFailed


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+sentinel://127.0.0.1:1/mymaster"])
def test_a_push_that_fails_shows_no_frames_of_redis_py(url: str, *, is_awaited: bool) -> None:
    app = Lowkiq(redis_url=url, push_timeout=0.2)
    worker = app.worker(queue_name="shop")(lambda payloads_by_id: None)
    with pytest.raises(PushFailed, match="none of 1 payloads was sent to Redis: ") as failed:
        if is_awaited:
            asyncio.run(worker.aperform_async([{"id": 1}]))
        else:
            worker.perform_async([{"id": 1}])
    app.close()
    told = "".join(traceback.format_exception(failed.value))
    assert "/redis/" not in told and "direct cause" not in told and "During handling" not in told, told
