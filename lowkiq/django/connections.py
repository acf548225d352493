"""
Database connections around batches, as Django has them around requests: one that has failed, or is older than
CONN_MAX_AGE, is closed before a batch and after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections


def close_stale() -> None:
    """
    Closes connections of this thread that have failed or are too old. One in a transaction is left alone, which is a
    test's, around what it has run here: Django's close_old_connections would close it.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


class FreshConnections:
    """
    A middleware. Around a sync perform it runs in the thread that performs, whose connections those are, also in a
    process of its own. An async perform gets what a request under ASGI does: a thread of its own for what is sync in
    the ORM, so that batches don't wait for each other's queries, with connections that end with it.
    """

    def __call__(self, _worker: Any, _batch: Any, call: Callable[[], Any]) -> Any:
        close_stale()
        try:
            return call()
        finally:
            close_stale()

    @staticmethod
    async def around_async(_worker: Any, _batch: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        """Takes its place around an async perform."""
        async with ThreadSensitiveContext():
            try:
                return await call()
            finally:
                # The thread ends with the context: nobody could use them again, or close them.
                await sync_to_async(connections.close_all)()


with_fresh_connections: Final = FreshConnections()
