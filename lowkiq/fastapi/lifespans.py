"""Lifespan: what begins and ends with a site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeAlias

from lowkiq.app import Lowkiq
from lowkiq.errors import SettingsError, short

#: A lifespan as FastAPI and Starlette take it, with a state or without.
Lifespan: TypeAlias = (
    Callable[[Any], AbstractAsyncContextManager[None]] | Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
)


class OnThread(Protocol):
    """A relay that runs on a thread."""

    def start(self) -> object: ...
    def stop(self) -> None: ...


def lifespan(
    app: Lowkiq, *relays: OnThread | AbstractAsyncContextManager[Any], own: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """
    A lifespan for `FastAPI(lifespan=…)` or `Starlette(lifespan=…)`. At the end it waits for pushes that are on their
    way, and closes the connections to Redis. At the start it does not wait for Redis, so that a site which needs it
    for nothing but pushes starts without it.

    Args:
        relays: of outboxes: they run while the site does.
        own: the site's own lifespan. It begins before the relays and ends after them, so that it can make tables and
            dispose of engines, and can push to its end. Its state is passed on.

    Raises:
        SettingsError: what should be a relay is none.
    """
    for relay in relays:
        if not isinstance(relay, AbstractAsyncContextManager) and not hasattr(relay, "start"):
            raise SettingsError(f"{short(relay)} is no relay: make one with outbox.relay(engine); own= is a lifespan")

    @asynccontextmanager
    async def whole(site: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(app.aclose)
            state = await stack.enter_async_context(own(site)) if own else None
            for relay in relays:
                if isinstance(relay, AbstractAsyncContextManager):
                    await stack.enter_async_context(relay)
                else:
                    relay.start()
                    stack.push_async_callback(asyncio.to_thread, relay.stop)
            yield state

    return whole
