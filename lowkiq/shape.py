"""Shape: how a worker's function or method is called, as its signature says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Whether perform is a coroutine function, and whether it gets an id at a time."""

    is_async: bool = False
    is_one: bool = False

    def bind(self, worker: Any) -> Callable[[dict[str, list[Any]]], Any]:
        """The call of one batch; of an async worker it returns an awaitable."""
        call: Callable[[dict[str, list[Any]]], Any] = worker.perform
        return call
