"""The API's writes to the flow of a queue: pausing it, and resuming it."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool

from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.types import PauseReply, PauseRequest, Resumed
from lowkiq.web.security.guard import who_of


@operation(
    "POST",
    "/api/v1/queues/{queue}/pause",
    "pause",
    description="Nothing of it is claimed until it is resumed. Pushes go on, jobs that run are finished, and what "
    "nodes had claimed and not started goes back. Repeating it changes the reason, and looks again who has confirmed.",
    body=PauseRequest,
    refusals=NO_QUEUE,
    examples={"pause": {"reason": "the shop counts its stock"}},
)
async def pause(call: ApiCall) -> PauseReply:
    """Pause a queue."""
    body: PauseRequest = call.body

    def paused() -> PauseReply:
        actions = call.view.backend.actions(call.queue)
        done = actions.pause(body.reason, who=who_of(call.request), wait=body.wait)
        return PauseReply(done.since, done.is_confirmed, done.unconfirmed)

    return await run_in_threadpool(paused)


@operation("POST", "/api/v1/queues/{queue}/resume", "resume", refusals=NO_QUEUE)
async def resume(call: ApiCall) -> Resumed:
    """End the pause of a queue."""
    actions, who = call.view.backend.actions, who_of(call.request)
    return Resumed(await run_in_threadpool(lambda: actions(call.queue).resume(who=who)))
