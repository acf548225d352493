"""Subscription: what is published on channels, for one thread that listens; and the end of it once nobody is there."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import redis
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.transport.cluster import ClusterClient
from lowkiq.transport.sentinel import is_to_primary
from lowkiq.transport.server import TIMEOUTS

#: Seconds of silence after which Redis is pinged, and that it has for the answer: a listener sends nothing, and would
#: not notice that the other end, or something between, has forgotten the connection. Both, and as long as one look may
#: take, are within the five seconds after which all works again.
SILENCE, ANSWER = 1.5, 2.5

Message = Mapping[str, Any]


class Subscription:
    """
    Listens to channels of one server, which of a cluster may be any. A context manager. An error ends it: whoever goes
    on opens another, on a cluster by a topology that is asked for anew. Silence ends what is idle as well: `leave`.
    """

    def __init__(self, client: redis.Redis | ClusterClient, leave: Callable[[], None], *channels: str | bytes) -> None:
        make: Callable[[], Any] = client.pubsub
        self._client, self._leave = client, leave
        self._pubsub: Any = None
        self._heard_at, self._asked_at = clock.monotonic(), math.inf
        with self._ending():
            self._pubsub = make()
            self._pubsub.subscribe(*channels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, seconds: float) -> Message | None:
        """
        The next message of redis-py's, None if none comes in time. One of type "subscribe" comes at first for each
        channel, and again once the client has by itself connected anew. Raises a RedisError or OSError once nobody is
        at the other end, or another server has become the primary.
        """
        with self._ending():
            message: Message | None = self._pubsub.get_message(timeout=seconds)
            now = clock.monotonic()
            if not is_to_primary(self._pubsub):
                raise redis.ConnectionError("another server is the primary now")
            if message is not None:
                self._heard_at, self._asked_at = now, math.inf
            elif now - self._asked_at >= ANSWER:
                raise redis.TimeoutError("Redis does not answer to who listens")
            elif now - self._heard_at >= SILENCE:
                self._ping()
            return message

    def ask(self) -> None:
        """Pings, unless an answer is waited for: before what may take long where the connection is forgotten."""
        with self._ending():
            self._ping()

    def _ping(self) -> None:
        if self._asked_at == math.inf:
            self._pubsub.ping()
            self._asked_at = clock.monotonic()

    def close(self) -> None:
        """Ends it, by whichever thread."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with contextlib.suppress(RedisError, OSError):
                pubsub.close()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            self.close()
            if isinstance(error, TIMEOUTS):
                self._leave()
            if isinstance(self._client, ClusterClient):
                self._client.refresh()
            raise
