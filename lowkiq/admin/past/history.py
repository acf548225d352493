"""
History of what queues held and had done, over five minutes to a year: under 80 KB of Redis a queue, however long
it lives. Nodes take turns to add a sample (node/health/housekeeping.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lowkiq.admin.metrics import QueueMetrics, total
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked
from lowkiq.queue.unreadable import Unreadable, count, finite, parsed, quoted

#: Seconds between samples.
SAMPLE_INTERVAL: Final = 5.0
#: The name of the series that is the sum of all queues.
TOTAL: Final = ""
#: Queues that one script adds a sample for: about 2 ms.
SERIES_A_CALL: Final = 100


class Span(NamedTuple):
    """The seconds that a chart shows, and those that one of its points stands for."""

    seconds: int
    step: int


#: Each of 60 to 365 points: what a chart can show. One that is new here begins when a node first knows of it, and older
#: versions neither read nor write it.
SPANS: Final[Mapping[str, Span]] = {
    "5m": Span(300, 5),
    "1h": Span(3_600, 30),
    "1d": Span(86_400, 600),
    "30d": Span(30 * 86_400, 14_400),
    "365d": Span(365 * 86_400, 86_400),
}
SHORTEST: Final = "5m"
#: Bytes of a point that are read.
MOST_BYTES: Final = 1_000


class Point(msgspec.Struct, frozen=True):
    """A step of a queue's history: gauges at their highest, counters as of its end."""

    #: Unix time at which the step begins.
    at: float
    length: int
    retries: int
    busy: int
    morgue_length: int
    lag: float
    processed: int
    failed: int
    pushed: int
    merged: int


def take_turn(caller: Caller, namespace: str, node: str) -> bool:
    """True for the node that adds the next sample: the first to ask after the last one."""
    turn = round(SAMPLE_INTERVAL * 900)  # a little less than a beat, lest a lone node miss every other turn
    return caller.run(Call("turn", [keys.history_turn(namespace)], [node, turn], bool))


def record(caller: Caller, namespace: str, queues: Mapping[str, QueueMetrics]) -> None:
    """Adds a sample of each queue, and of all of them together."""
    spans = [word for name, span in SPANS.items() for word in (name, span.step, span.seconds // span.step)]
    for some in chunked([(TOTAL, total(queues.values())), *queues.items()], SERIES_A_CALL):
        series = [keys.history(namespace, queue) for queue, _ in some]
        caller.run(Call("record", series, [len(SPANS), *spans, *(_sample(row) for _, row in some)], bool))


def read_history(caller: Caller, namespace: str, queue: str, span: str) -> list[Point]:
    """The points of a span that lie within it, oldest first. `queue` may be TOTAL."""
    key, (length, step) = f"{keys.history(namespace, queue)}{span}", SPANS[span]
    time, records = caller.read([("TIME",), ("LRANGE", key, -(length // step), -1)], [])
    points = _points(caller, key, records)
    return [point for point in points if point.at >= time[0] - length]


def read_earlier(caller: Caller, namespace: str, queues: Iterable[str]) -> dict[str, Point]:
    """Points of ten to fifteen seconds ago, of each queue that has one: rates can be taken from them."""
    names = {queue: f"{keys.history(namespace, queue)}{SHORTEST}" for queue in queues}
    records = caller.read([("LINDEX", key, -3) for key in names.values()], None)
    found = zip(names.items(), records, strict=True)
    return {queue: point for (queue, key), record in found if record for point in _points(caller, key, [record])}


#: Span and place of points that are about 15 s, half a minute, a minute, five and ten minutes and an hour old.
MILESTONES: Final = (("5m", -3), ("5m", -6), ("5m", -13), ("5m", 0), ("1h", -21), ("1h", 0))


def read_milestones(caller: Caller, namespace: str, queues: Iterable[str]) -> dict[str, list[Point]]:
    """A few points of the last hour of each queue, as far as there are any: alerts are judged by them."""
    names = list(queues)
    series = [(f"{keys.history(namespace, queue)}{span}", place) for queue in names for span, place in MILESTONES]
    replies = iter(caller.read([("LINDEX", key, place) for key, place in series], None))
    found: dict[str, list[Point]] = {}
    for queue in names:
        for span, _ in MILESTONES:
            record, key = next(replies), f"{keys.history(namespace, queue)}{span}"
            found.setdefault(queue, []).extend(_points(caller, key, [record]) if record else [])
    return found


def _points(caller: Caller, key: str, records: Iterable[bytes]) -> list[Point]:
    met: list[Unreadable] = []
    points = [parsed(met, quoted(key), f"UNLINK {quoted(key)}", _point, record) for record in records]
    caller.met.tell(f"{key} points", met[:1])  # one of a key says enough
    return [point for point in points if point]


def _sample(row: QueueMetrics) -> str:
    gauges = f"{row.length} {row.retries} {row.busy} {row.morgue_length} {row.lag:.3f}"
    return f"{gauges} {row.processed} {row.failed} {row.pushed} {row.merged}"


def _point(record: bytes) -> Point:
    """A newer Lowkiq may have put more columns behind these."""
    words = record[:MOST_BYTES].split()
    if len(words) < len(Point.__struct_fields__):
        raise ValueError(f"{quoted(record, 60)} is no point of a history")
    values: list[Any] = [finite(words[0]), *map(count, words[1:5]), finite(words[5]), *map(count, words[6:10])]
    return Point(*values)
