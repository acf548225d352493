"""
Events: the last lines of the supervisor's log, which say what it has decided and why, for `status`; and those of them
that are incidents, for its nodes to tell Redis.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict, deque
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog

from lowkiq import clock
from lowkiq.shared_page import Event

#: Events that are kept, and incidents.
KEPT, KEPT_INCIDENTS = 100, 50
#: Characters of a fact: a traceback is for the log.
LONGEST: Final = 200
#: Lines that say what was asked for, and decide nothing.
_ANSWERS: Final = frozenset({"status", "dump"})
_LEFT_OUT: Final = frozenset({"event", "slot", "node", "hint", "exc_info", "exception"})
#: Event → kind of incident, how bad it is, and the sentence, with facts in it.
_INCIDENTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "died_will_restart": ("death", "bad", "{slot} died, and is started again: {meaning}"),
    "died_wont_restart": ("death", "bad", "{slot} died, and is given up: {meaning}"),
    "died_successor_takes_over": ("death", "bad", "{slot} died, and its successor takes over: {meaning}"),
    "successor_ended": ("death", "warn", "The successor of {slot} ended: {meaning}"),
    "keeps_failing": ("crash loop", "bad", "{slot} has failed {failures} times and is tried on: {meaning}"),
    "crash_loop": ("crash loop", "bad", "{slot} has failed {failures} times, so all nodes are drained: {last}"),
    "hung": ("hang", "bad", "{slot} hung, and is ended with a dump: no beat for {silence:.1f} s"),
    "recycled": ("recycle", "note", "{slot} asked for a successor"),
    "handing_over of recycling": ("recycle", "note", "{slot} retires, as process {to} takes over: {why}"),
    "cut_off_for_successor": ("recycle cut off", "bad", "{slot} was cut off ({why}): {reason}; its jobs run again"),
    "successor_failed": ("recycle", "warn", "{slot} stays, as its successor failed: {reason}"),
    "handing_over": ("restart", "note", "{slot} makes room for process {to}: {why}"),
    "scaling": ("scale", "note", "From {before} to {to} nodes here: {why}"),
    "roll_stopped": ("restart", "bad", "A rolling restart has stopped: {reason}"),
}  # fmt: skip


class Events:
    """A processor of structlog, so that no decision is logged and not kept, nor the other way round."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._name, self._number = secrets.token_hex(8), 0
        #: The last ones, oldest first.
        self.incidents: tuple[Event, ...] = ()

    def watch(self) -> None:
        """Keep what is logged from now on."""
        structlog.configure(processors=[self, *structlog.get_config()["processors"]])

    def __call__(self, _logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if line.get("event") not in _ANSWERS:
            facts = {name: _plain(value) for name, value in line.items() if name not in _LEFT_OUT}
            kept = {"time": round(time.time(), 3), "event": str(line.get("event")), "slot": line.get("slot")}
            self._kept.append(kept | {"facts": facts})
        if incident := _INCIDENTS.get(f"{line.get('event')}{' of recycling' if line.get('recycling') else ''}"):
            self._note(line, *incident)
        return line

    def latest(self) -> list[dict[str, Any]]:
        """The last ones, oldest first."""
        return list(self._kept)

    def _note(self, line: Mapping[str, Any], kind: str, severity: str, sentence: str) -> None:
        facts = defaultdict(lambda: "unknown", {name: _fact(name, value) for name, value in line.items()})
        says = sentence.format_map(facts)
        self._number += 1
        key = f"{self._name}:{self._number}"
        event = Event(key, clock.monotonic(), kind, severity, says[:1].upper() + says[1:], line.get("node") or "")
        self.incidents = (*self.incidents, event)[-KEPT_INCIDENTS:]


def _fact(name: str, value: Any) -> Any:
    return value if name == "silence" else _plain(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
