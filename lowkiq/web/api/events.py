"""Events and tracked ids in the API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from lowkiq import SettingsError
from lowkiq.admin.events import READ, Events
from lowkiq.admin.jobs.tracking import Tracked
from lowkiq.codec import encodable
from lowkiq.errors import Refused
from lowkiq.log import get_logger
from lowkiq.web.api.input import MAX_FIELDS, Rejected
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.replies import Moved
from lowkiq.web.api.requests import MAX_IDS, Id, Text
from lowkiq.web.security.access import CALLER

#: Listeners of one view at a time: each takes a connection to Redis.
MOST_LISTENERS: Final = 16
#: Seconds between two signs of life.
KEEP_ALIVE: Final = 15.0
#: Seconds after which a listener that does not read gives its place up.
SENT_WITHIN: Final = 30.0

logger = get_logger()

_places = threading.BoundedSemaphore(MOST_LISTENERS)


class EventsQuery(msgspec.Struct, frozen=True):
    """Choice of events."""

    queue: Annotated[Text | None, Meta(description="A queue's name; without one, all of them.")] = None
    id: Annotated[
        Annotated[list[Text], Meta(min_length=1, max_length=MAX_FIELDS)] | None,
        Meta(description="Only of this id; may be given again."),
    ] = None
    kinds: Annotated[Text | None, Meta(description="Only of these kinds, with commas between them.")] = None


class TrackRequest(msgspec.Struct, frozen=True):
    """Ids to be tracked, or no longer."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_IDS)]
    track: bool = True


class TrackedReply(msgspec.Struct, frozen=True):
    """Ids that somebody tracks, with what has happened to them since."""

    tracked: list[Tracked]


@operation(
    "GET",
    "/api/v1/events",
    description="Server-sent events: each has its kind as its event, and JSON of at, kind, queue, id, node and detail. "
    "A gap says that some may be missing. It ends with the session that asked for it.",
    query=EventsQuery,
    replies={200: [str]},
    refusals={429: "Too many listen already."},
    media_type="text/event-stream",
)
async def events(call: ApiCall) -> Response:
    """What happens to jobs, as it happens."""
    query: EventsQuery = call.query
    if not _places.acquire(blocking=False):
        raise Rejected(429, f"{MOST_LISTENERS} listen to events already: try again later", {"Retry-After": "10"})
    try:
        kinds = query.kinds.split(",") if query.kinds else None
        listening = await run_in_threadpool(call.view.app.events, query.queue, query.id, kinds)
    except BaseException as error:
        _places.release()
        if isinstance(error, SettingsError):
            raise Rejected(400, str(error)) from error
        raise
    return _EventStream(call, listening)


@operation("GET", "/api/v1/tracked")
def tracked(call: ApiCall) -> TrackedReply:
    """Ids that somebody tracks, the first fifty."""
    return TrackedReply([msgspec.structs.replace(one, id=encodable(one.id)) for one in call.backend.tracked()])


@operation(
    "POST",
    "/api/v1/queues/{queue}/track",
    body=TrackRequest,
    refusals=NO_QUEUE | {409: "Too many ids of the queue are tracked."},
    examples={"track": {"ids": ["17"]}, "untrack": {"ids": ["17"], "track": False}},
)
def track(call: ApiCall) -> Moved:
    """Track ids, or no longer."""
    actions = call.backend.actions(call.queue)
    try:
        return Moved((actions.track if call.body.track else actions.untrack)(call.body.ids))
    except ValueError as error:
        raise Rejected(400, f"field ids: {error}") from error
    except Refused as error:
        raise Rejected(409, str(error)) from error


class _EventStream(StreamingResponse):
    """
    Sends events, and has one of the places until it ends, also where it never began. While its client does not read,
    events wait in Redis, which cuts off who lets too many pile up; and after a while the stream ends.
    """

    def __init__(self, call: ApiCall, listening: Events) -> None:
        # nginx would keep it until it has some kilobytes.
        headers = {"X-Accel-Buffering": "no"}
        self._listening, self._gone = listening, asyncio.Event()
        super().__init__(_stream(call, listening, self._gone), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (Starlette's)
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SENT_WITHIN):
                await send(message)

        # Not Starlette's way, by which two wait for the same message, or one that is cancelled again and again.
        watching = asyncio.ensure_future(self._watch(receive))
        try:
            await self.stream_response(send_in_time)
        except TimeoutError:
            logger.warning("slow_listener", detail=f"it has read nothing for {SENT_WITHIN:g} s: its stream ends")
        except OSError:  # by which newer servers say that who listened has gone
            pass
        finally:
            watching.cancel()
            self._listening.close()
            _places.release()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone.set()


async def _stream(call: ApiCall, listening: Events, gone: asyncio.Event) -> AsyncIterator[bytes]:
    spoken_at = asyncio.get_running_loop().time()
    yield b": listening\n\n"
    while not gone.is_set() and await _may_listen(call):
        event = await run_in_threadpool(listening.next, READ)
        now = asyncio.get_running_loop().time()
        if event is not None:
            data = msgspec.json.encode(msgspec.structs.replace(event, id=encodable(event.id)))
            yield b"event: %b\ndata: %b\n\n" % (event.kind.encode(), data)
        elif now - spoken_at < KEEP_ALIVE:
            continue
        else:
            yield b": still here\n\n"
        spoken_at = now


async def _may_listen(call: ApiCall) -> bool:
    """False once the session is over that has asked for the stream, in whatever process."""
    access, caller = call.view.access, call.request.scope.get(CALLER)
    if caller is None or caller.kind != "session":
        return True
    await access.ended.refresh(call.view.backend.ended_sessions)
    return access.caller_by_session(call.request.cookies.get(access.cookie_name, "")) is not None
