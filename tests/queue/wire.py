"""Wire: between a caller and Redis; loses replies, and holds calls up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from lowkiq.queue.call import Caller


class Wire:
    """Between a caller and Redis: it loses the reply to the next call of a script, or keeps the call itself."""

    def __init__(self, caller: Caller, meanwhile: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Any] = []
        self.replies: list[list[Any]] = []
        self.states: list[Any] = []
        self._pass, self._meanwhile = caller._server.pipeline, meanwhile
        self._patch = monkeypatch
        self._server: Any = caller._server

    def lose_reply(self) -> None:
        """As when the connection breaks: the client sends it again."""

        def pipeline(commands: Sequence[Any], replicas: Any = None) -> list[Any]:
            self._patch.setattr(self._server, "pipeline", self._pass)
            self.replies.append(self._pass(commands, replicas))
            self._meanwhile()
            self.replies.append(self._pass(commands, replicas))
            return self.replies[-1]

        self._patch.setattr(self._server, "pipeline", pipeline)

    def hold_up(self) -> None:
        """The call is on its way for longer than its caller waits."""

        def pipeline(commands: Sequence[Any], _replicas: Any = None) -> list[Any]:
            self._patch.setattr(self._server, "pipeline", self._pass)
            self.sent = list(commands)
            raise redis.TimeoutError("held up")

        self._patch.setattr(self._server, "pipeline", pipeline)

    def arrive(self) -> list[Any]:
        return self._pass(self.sent)
