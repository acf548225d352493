"""Tables of the command line: a narrow terminal gets all that a wide one does."""

from __future__ import annotations

import datetime
import re

import msgspec
import pytest
from rich.console import Console

from lowkiq.admin.beats.health import NodeHealth, ThreadHealth
from lowkiq.admin.beats.nodes import judge
from lowkiq.admin.jobs.failures import ErrorGroup, Groups
from lowkiq.admin.jobs.finder import FoundJob
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.past.statistics import Lengths, Statistics
from lowkiq.admin.why.reasons import Reason
from lowkiq.cli import tables

QUEUE = QueueMetrics(**dict.fromkeys((field.name for field in msgspec.structs.fields(QueueMetrics)), 1_234_567))
THREAD = ThreadHealth(name="lowkiq-worker-12", queue="invoices", shard=17, ids=["order-1234567"], jobs=9, seconds=61.0)
NODE = NodeHealth(
    node="host:1:abc", boot_id="b", host="worker-7.example.com", pid=4_194_303, supervisor_pid=1, node_number=127,
    number_of_nodes=128, slot=0, state="retiring", started_at=1.0, beat_at=2.0, version="1", queues=["q"],
    owned={"q": [0]}, waited_for={}, threads=[THREAD], tasks=1_234, processed=123_456_789, failed=98_765_432,
    rss=65_536 << 20, cpu_percent=100.0, redis_round_trip=0.1234, restarts=7, last_exit=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (tables.of_queues({"invoices": QUEUE, "m": QUEUE}), ["invoices", "morgue_length", "1,234,567.0 s"]),
        (
            tables.of_nodes(judge([NODE], [], [])),
            ["worker-7.example.com", "127 of 128", "4194303", "123,456,789", "98,765,432", "65,536 MiB", "123.4 ms"],
        ),
        (
            tables.of_nodes(judge([msgspec.structs.replace(NODE, weights={"q": 8, "invoices": 1})], [], [])),
            ["worker-7.example.com", "weights", "q=8,invoices=1"],
        ),
    ],
    ids=["stats", "nodes", "weights"],
)
def test_at_eighty_columns_nothing_is_dropped(monkeypatch, capsys, table, words):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    tables.show(table)
    text = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert max(map(len, text.splitlines())) <= 80
    for word in words:
        assert word in text, text


LONG = "no stock of a thing whose name is long, in any of the houses where there could be some of it, nor elsewhere"


WHY = Reason("retry", "Not due until tomorrow: it failed twice and tries again then", state="Retrying")


def a_job(id: str = "order-1") -> FoundJob:
    job = JobPreview(
        id=id, shard=0, where="queue", at=1.0, retry_count=2, error=LONG, crashes=0, waits_for_own_run=False,
        payload_count=17, payloads=[],
    )  # fmt: skip
    return FoundJob("a-queue-of-a-name", job)


def test_sentences_are_wrapped_and_what_is_short_stays_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    times = Lengths(count=1_000, mean=0.00356, stddev=0.00257, p50=0.00322, p95=0.0091, p99=0.0515, buckets=[])
    days = [Statistics(day=datetime.date(2026, 11, 24), wait=times, run=times)]
    group = ErrorGroup(text=LONG, count=1_234, example_id="order-12345", total=99_999, first_seen=1e9, last_seen=1.7e9)
    found = [tables.found(one, WHY) for one in (a_job(), a_job(id="x" * 100))]
    for table, words in (
        (tables.of_statistics("q", days), ["2026-11-24", "deviation", "3.56 ms", "51.5 ms", "waited"]),
        (tables.of_found(found), ["a-queue-of-a-name", "Retrying", "17"]),
        (tables.of_failures("q", "morgue", Groups([group], 1, 1)), ["2001-09-09T01:46:40+00:00", "order-12345"]),
    ):
        tables.show(table)
        text = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
        assert "\N{HORIZONTAL ELLIPSIS}" not in text
        assert max(map(len, text.splitlines())) <= 80
        assert all(word in text for word in words), text


def test_where_there_is_room_a_queue_has_one_row():
    table = tables.of_queues({"invoices": QUEUE})
    assert tables.fitted(table, Console(width=300)) is table
