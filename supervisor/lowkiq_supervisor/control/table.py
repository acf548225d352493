"""The status as a table for people."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

COLUMNS = (
    "slot", "node", "pid", "state", "uptime", "beat", "busy", "rss", "restarts", "why",
)  # fmt: skip
_TO_THE_LEFT = {"state", "why"}
#: Events shown below the table.
EVENTS = 5

_COLOURS = {
    **dict.fromkeys(("ready", "running"), "green"),
    **dict.fromkeys(("starting", "rolling", "quiet"), "cyan"),
    **dict.fromkeys(("retiring", "draining", "backoff", "waiting"), "yellow"),
    **dict.fromkeys(("killed", "degraded", "given up"), "red"),
}

#: Seconds of each unit, and above which number of them the next larger one is used.
_UNITS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0))


def render(status: dict[str, Any]) -> RenderableType:
    """A line about the supervisor and a row for each of its processes."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in COLUMNS:  # folded rather than cut, where a terminal is narrow
        table.add_column(name, justify="left" if name in _TO_THE_LEFT else "right", overflow="fold")
    for row in status["nodes"]:
        table.add_row(*_cells(row))
    for row in status.get("beside", ()):
        table.add_row(*_cells(row))
    for name in ("web", "redis"):
        if row := status.get(name):
            table.add_row(*_cells(row, name))
    return Group(_headline(status), *_roll(status.get("roll")), table, *map(_event, status.get("events", ())[-EVENTS:]))


def _roll(roll: dict[str, Any] | None) -> list[Text]:
    """A line about a rolling restart that goes on, or has stopped."""
    if roll is None or roll["state"] == "over":
        return []
    left = f"{len(roll['done'])} done, left: {', '.join(roll['left']) or 'none'}"
    if roll["state"] == "stopped":
        return [Text(f"roll stopped: {roll['reason']}; {left}; `restart --resume` goes on", "red")]
    return [Text(f"rolling ({roll['why']}): now {roll['current'] or 'none'}; {left}", "cyan")]


def _event(event: dict[str, Any]) -> Text:
    """One of the last events, in a line."""
    at = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    facts = "  ".join(f"{name}={value}" for name, value in event["facts"].items() if value not in (None, ""))
    return Text(f"{at}  {event['slot'] or 'supervisor'}  {event['event']}  {facts}", "dim")


def _headline(status: dict[str, Any]) -> Text:
    own = status["supervisor"]
    redis, web = status["redis"], status.get("web")  # a supervisor that runs since before an update tells of no view
    line = Text.assemble(
        "lowkiq ", own["version"], "  supervisor ", str(own["pid"]), "  ", _state(own["state"]),
        "  up ", duration(own["uptime"]), f"  {_nodes(own)}  app {own['app']}",
    )  # fmt: skip
    if own.get("queues"):
        weights = own.get("weights") or {}
        queues = [f"{queue}={weights[queue]}" if queue in weights else queue for queue in own["queues"]]
        line.append(f"  queues {', '.join(queues)}")
    if redis is not None:
        line.append_text(Text.assemble("  embedded Redis ", _state(redis["state"])))
    if web is not None:
        line.append_text(Text.assemble(f"  web {web['address']} ", _state(web["state"])))
    return line


def _nodes(own: dict[str, Any]) -> str:
    """How many there are, and are to be."""
    scale = own.get("scale")
    if not scale:  # they are numbered, or the supervisor runs since before an update
        return f"{own['nodes']} nodes of {own['number_of_nodes']}"
    least, most = scale["range"] or (None, None)
    of = "" if least is None else f" of {least} to {most}, by {'load' if scale['by_load'] else 'hand'}"
    goal = "" if own["nodes"] == scale["goal"] else f", to be {scale['goal']}"
    return f"{own['nodes']} {'node' if own['nodes'] == 1 else 'nodes'}{of}{goal}"


def _cells(row: dict[str, Any], name: str | None = None) -> list[str | Text]:
    restarts = f"{row['restarts']}" + (f" ({row['failures']} failed)" if row["failures"] else "")
    return [
        name or _or_dash(row["slot"]),
        _or_dash(row["node_number"]),
        _or_dash(row["pid"]),
        # Another node may have this one's shards: one with the same number, or one of an earlier layout.
        _state(row["state"]).append(f", stands by for {row['waits']} shards" if row.get("waits") else "", "yellow"),
        duration(row["uptime"]),
        _or_dash(row["beat_age"], "{:.1f} s"),
        _or_dash(row["busy"]),
        _or_dash(None if row["rss"] is None else row["rss"] / 2**20, "{:.0f} M"),
        restarts,
        _or_dash(row["why"]),
    ]


def _or_dash(value: object, template: str = "{}") -> str:
    return "-" if value is None else template.format(value)


def _state(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, ""))


def duration(seconds: float | None) -> str:
    """The two largest units: 3d 4h, 12m 5s."""
    if seconds is None:
        return "-"
    parts: list[str] = []
    for name, unit in _UNITS:
        if seconds >= unit or parts:
            parts.append(f"{seconds // unit:.0f}{name}")
            seconds %= unit
    return " ".join([*parts, f"{int(seconds)}s"][:2])
