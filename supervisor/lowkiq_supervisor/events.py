"""Events: the last lines of the supervisor's log, which say what it has decided and why, for `status`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

#: Events that are kept.
KEPT: Final = 100
#: Characters of a fact: a traceback is for the log.
LONGEST: Final = 200
#: Lines that say what was asked for, and decide nothing.
_ANSWERS: Final = frozenset({"status", "dump"})
_LEFT_OUT: Final = frozenset({"event", "slot", "hint", "exc_info", "exception"})


class Events:
    """A processor of structlog, so that no decision is logged and not kept, nor the other way round."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def watch(self) -> None:
        """Keep what is logged from now on."""
        structlog.configure(processors=[self, *structlog.get_config()["processors"]])

    def __call__(self, _logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if line.get("event") not in _ANSWERS:
            facts = {name: _plain(value) for name, value in line.items() if name not in _LEFT_OUT}
            kept = {"time": round(time.time(), 3), "event": str(line.get("event")), "slot": line.get("slot")}
            self._kept.append(kept | {"facts": facts})
        return line

    def latest(self) -> list[dict[str, Any]]:
        """The last ones, oldest first."""
        return list(self._kept)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
