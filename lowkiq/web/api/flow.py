"""The API's writes to the flow of a queue: pausing and resuming it, and its live settings."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool

from lowkiq.errors import SettingsError
from lowkiq.queue.call import redis_time
from lowkiq.queue.rates import read_waiting
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.replies import PauseReply, Resumed, SettingRow, SettingsReply
from lowkiq.web.api.requests import PauseRequest, SettingsRequest
from lowkiq.web.live_options import options_of
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


@operation("GET", "/api/v1/queues/{queue}/settings", "getSettings", refusals=NO_QUEUE)
async def settings(call: ApiCall) -> SettingsReply:
    """Options of a queue that can be set while nodes run, and what is set."""
    (await call.view.snapshots.get()).row(call.queue)  # there must be one
    return await run_in_threadpool(_settings, call)


@operation(
    "POST",
    "/api/v1/queues/{queue}/settings",
    "setSettings",
    description="Nodes follow within a second or two. What is unset is as the code says again.",
    body=SettingsRequest,
    refusals=NO_QUEUE,
    examples={"set": {"set": {"concurrency": 10}}, "unset": {"unset": ["concurrency"]}},
)
async def set_settings(call: ApiCall) -> SettingsReply:
    """Set options of a queue, or have them be those of the code again."""
    body: SettingsRequest = call.body

    def change() -> SettingsReply:
        actions, who = call.view.backend.actions(call.queue), who_of(call.request)
        try:
            if body.set or not body.unset:
                options: Any = {name: value for name, value in body.set.items() if name != "who"}
                actions.set(who=who, **options)
            if body.unset:
                actions.unset(*body.unset, who=who)
        except SettingsError as error:
            raise Rejected(400, str(error)) from error
        return _settings(call)

    return await run_in_threadpool(change)


def _settings(call: ApiCall) -> SettingsReply:
    rows = {
        one.name: SettingRow(
            one.value, one.code, one.setting is not None, one.setting.who if one.setting else "",
            one.setting.at if one.setting else None,
        )
        for one in options_of(call.view, call.queue)
    }  # fmt: skip
    backend = call.view.backend
    now = redis_time(backend.caller)
    waiting = read_waiting(backend.caller, backend.namespace, [call.queue], now).get(call.queue)
    return SettingsReply(call.queue, rows, *(waiting or ()))
