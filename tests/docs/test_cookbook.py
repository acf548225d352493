"""The cookbook's recipes do what they say: each section's blocks are a module, whose jobs run in the testing kit."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import httpx
import pytest

from lowkiq import testing
from tests.docs.recipe import as_module
from tests.support import ROOT

PAGE = (ROOT / "docs/cookbook.md").read_text("utf-8")
SECTIONS = {
    heading: re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}

Load = Callable[[str], ModuleType]
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def load(tmp_path, monkeypatch) -> Load:
    """Makes a module of the first block of a section, in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    return lambda heading: as_module(SECTIONS[heading][0], tmp_path, monkeypatch)


class Service:
    """Somebody's API: answers in turn, the last one again and again, and keeps what it was asked."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.answers, self.asked = [*answers], list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_every_section_with_code_has_a_test():
    text = (ROOT / "tests/docs/test_cookbook.py").read_text("utf-8")
    assert [heading for heading, blocks in SECTIONS.items() if blocks and f'load("{heading}")' not in text] == []


def test_a_mail_goes_out_once_and_only_after_the_commit(load, monkeypatch):
    shop = load("Mail after commit")
    sent: list[Any] = []
    monkeypatch.setattr(shop, "send", sent.append)
    with testing.fake(shop.app) as jobs:
        shop.place_order(17, "ann@example.org")
        jobs.assert_not_pushed(shop.confirm)
        with pytest.raises(Exception, match="UNIQUE"):
            shop.place_order(17, "bob@example.org")
        while shop.relay.run_once():
            pass
        jobs.drain()
        shop.confirm.perform_async([{"id": 17}])  # once more
        jobs.drain()
    assert [message["To"] for message in sent] == ["ann@example.org"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (httpx.Response(200), "done"),
        (httpx.Response(409), "done"),
        (httpx.Response(422, text="no such customer"), "buried"),
        (httpx.Response(429, headers={"Retry-After": "7"}), "snoozed"),
        (httpx.Response(503), "failed"),
    ],
)
def test_each_answer_of_an_erp_has_its_outcome(load, answer, outcome):
    erp, service = load("Sync to an ERP"), Service(answer)
    erp.http = httpx.Client(base_url="https://erp.example.org", transport=httpx.MockTransport(service))
    with testing.fake(erp.app) as jobs:
        exec(SECTIONS["Sync to an ERP"][1], vars(erp))  # the push of the page
        (found,) = jobs.drain()
    assert getattr(found, outcome), found
    (asked,) = service.asked
    assert json.loads(asked.content)["state"] == "sent"
    assert asked.headers["Idempotency-Key"] == "order-17-2"


def test_an_erp_that_stays_away_blocks_the_order(load):
    erp, service = load("Sync to an ERP"), Service(httpx.Response(503))
    erp.http = httpx.Client(base_url="https://erp.example.org", transport=httpx.MockTransport(service))
    with testing.fake(erp.app) as jobs:
        erp.sync_order.push({"order_id": 17, "version": 1, "state": "paid"})
        outcomes = jobs.drain(until="+30d")
        assert (len(outcomes), outcomes[-1].blocked) == (11, True)
        assert jobs.morgue(erp.sync_order) == []


def test_a_webhook_is_pushed_if_its_signature_is_right(load):
    hooks = load("Webhooks in")

    async def post(event: Any, key: bytes) -> int:
        body = json.dumps(event).encode()
        signature = hmac.new(key, body, hashlib.sha256).hexdigest()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(hooks.site), base_url="http://shop") as client:
            answer = await client.post("/webhooks/payments", content=body, headers={"X-Signature": signature})
        return answer.status_code

    async def receive() -> list[int]:
        second, first = ({"id": f"e{n}", "account": "a", "sequence": n} for n in (2, 1))
        return [await post(second, hooks.SECRET), await post(first, hooks.SECRET), await post(first, b"wrong")]

    with testing.fake(hooks.app) as jobs:
        assert asyncio.run(receive()) == [202, 202, 401]
        (job,) = jobs.pending(hooks.apply_events)
        assert [event["sequence"] for event in job.payloads] == [1, 2]
        assert [outcome.done for outcome in jobs.drain()] == [True]


def test_events_of_an_endpoint_are_delivered_one_by_one_in_order(load):
    hooks = load("Webhooks out")
    service = Service(httpx.Response(503), httpx.Response(429), httpx.Response(200))
    hooks.http = httpx.AsyncClient(transport=httpx.MockTransport(service))
    with testing.fake(hooks.app) as jobs:
        events = [{"id": f"e{n}", "url": "https://ann.example.org/hook", "body": {"n": n}} for n in range(3)]
        hooks.deliver.perform_async([{"id": "ann", "payload": event} for event in events])
        jobs.drain(until="+1h")
        assert jobs.pending(hooks.deliver) == []
    assert [request.headers["Idempotency-Key"] for request in service.asked] == ["e0", "e0", "e0", "e1", "e2"]
    first = service.asked[0]
    assert first.headers["X-Signature"] == hmac.new(hooks.SECRET, first.content, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(("status", "outcome"), [(410, "done"), (500, "blocked")])
def test_an_endpoint_that_is_gone_is_left_alone_and_one_that_is_broken_waits(load, status, outcome):
    hooks = load("Webhooks out")
    hooks.http = httpx.AsyncClient(transport=httpx.MockTransport(Service(httpx.Response(status))))
    with testing.fake(hooks.app) as jobs:
        hooks.deliver.perform_async(
            [{"id": "ann", "payload": {"id": "e", "url": "https://ann.example.org", "body": {}}}]
        )
        assert getattr(jobs.drain(until="+30d")[-1], outcome)


def test_a_tenant_has_its_rate_and_keeps_nobody_else(load):
    shop = load("Limits per tenant")
    with testing.fake(shop.app, at=datetime(2030, 1, 1, tzinfo=UTC)) as jobs:
        exports = [("ann", n) for n in range(150)] + [("bob", 0)]
        shop.export.perform_async(
            [{"id": f"{who}-{n}", "payload": {"tenant": who, "format": "csv"}} for who, n in exports]
        )
        ran = Counter(outcome.id.partition("-")[0] for outcome in jobs.drain() if outcome.done)
        assert ran == {"ann": 100, "bob": 1}
        ran += Counter(outcome.id.partition("-")[0] for outcome in jobs.drain(until="+2m") if outcome.done)
        assert ran == {"ann": 150, "bob": 1}


def test_a_nightly_job_runs_once_a_night(load):
    shop = load("Nightly jobs")
    with testing.fake(shop.app, at=datetime(2030, 3, 29, 12, tzinfo=UTC)) as jobs:
        outcomes = jobs.drain(until=timedelta(days=3))
        times = [datetime.fromtimestamp(outcome.at, shop.BERLIN).strftime("%d %H:%M") for outcome in outcomes]
    assert times == ["30 02:30", "31 03:00", "01 02:30"]  # on the 31st the clocks skip 02:30


def test_the_end_of_a_batch_reads_all_results(load):
    shop = load("Fan-out and in, with results")
    with testing.fake(shop.app) as jobs:
        shop.make_report("r1", [1, 2, 3])
        assert len(jobs.drain()) == 4
    with shop.database() as connection:
        assert connection.execute("SELECT * FROM reports").fetchall() == [("r1", 60)]


def test_an_import_goes_on_where_it_was_interrupted_and_a_browser_sees_it(load, tmp_path):
    shop = load("A long import with progress in a browser")
    lines = [f"line {number}" for number in range(250)]
    (tmp_path / "rows.txt").write_text("\n".join(lines))
    parts: list[int] = []

    class Flaky(sqlite3.Connection):
        """One that is away for a moment, at the second part."""

        def executemany(self, sql, rows):
            parts.append(rows[0][1])
            if len(parts) == 2:
                raise sqlite3.OperationalError("away")
            return super().executemany(sql, rows)

    shop.database = lambda: sqlite3.connect("imports.db", isolation_level=None, factory=Flaky)

    async def look() -> list[Any]:
        transport = httpx.ASGITransport(shop.site)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.get("/imports/7/progress")
        return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]

    with testing.fake(shop.app) as jobs:
        shop.import_file.perform_async([{"id": "7", "payload": str(tmp_path / "rows.txt")}])
        first, second = jobs.drain(until="+5m")
        assert (first.failed, second.done) == (True, True)
    assert parts == [0, 100, 100, 200]
    with shop.database() as connection:
        assert [row[0] for row in connection.execute("SELECT text FROM rows ORDER BY number")] == lines
    assert asyncio.run(look()) == [{"done": 250, "total": 250}]


def test_a_render_that_is_cancelled_stops_and_leaves_nothing(load, monkeypatch):
    shop = load("Cancel")
    drawn: list[int] = []

    def draw(render_id: int, page: int) -> None:
        drawn.append(page)
        shop.pages.setdefault(render_id, []).append(page)
        if page == 2:
            assert shop.cancel(render_id)

    monkeypatch.setattr(shop, "draw", draw)
    with testing.fake(shop.app) as jobs:
        shop.render.perform_async([{"id": 17}, {"id": 18, "delay": 60}])
        assert shop.cancel(18)
        assert len(jobs.drain(until="+1h")) == 1
    assert (drawn, shop.pages) == ([0, 1, 2], {})
    with testing.fake(shop.app):
        assert not shop.cancel(17)


def test_a_tenant_without_tokens_waits_and_no_answer_is_asked_for_twice(load):
    shop = load("LLM calls")
    said = httpx.Response(200, json={"text": "42", "tokens": 7})
    service = Service(httpx.Response(429, headers={"Retry-After": "20"}), said)
    shop.http = httpx.AsyncClient(base_url="https://llm.example.org", transport=httpx.MockTransport(service))
    with testing.fake(shop.app) as jobs:
        shop.ask.perform_async([{"id": f"q{n}", "payload": {"tenant": "ann", "text": "why?"}} for n in range(3)])
        outcomes = jobs.drain(until="+19s")
        assert [outcome.done for outcome in outcomes].count(True) == 0
        jobs.drain(until="+2m")
        shop.ask.perform_async([{"id": "q0", "payload": {"tenant": "ann", "text": "why?"}}])
        assert jobs.drain(until="+2m")[-1].done
    assert set(shop.answers) == {"q0", "q1", "q2"}
    assert shop.tokens == {"ann": 21}


def test_entries_of_cron_fire_at_their_times_and_a_failed_one_waits_for_the_next(load, capsys):
    shop = load("From cron, APScheduler or beat")
    with testing.fake(shop.app, at=datetime(2030, 1, 1, 0, 1, tzinfo=UTC)) as jobs:
        outcomes = jobs.drain(until="+1h")
    assert Counter(outcome.queue for outcome in outcomes) == {"polls": 12, "tidy": 1}
    assert shop.poll.max_retry_count == 0
    assert Counter(capsys.readouterr().out.split()) == {"polled": 12, "tidied": 1}
