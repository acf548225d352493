"""The recipes do what they say: their blocks are taken from docs/recipes.md, and batches run through them."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, ClassVar

import pytest

from lowkiq import Lowkiq, PartialFailure, Snooze, Worker
from lowkiq.handlers import log_fields
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.job import Job
from lowkiq.queue.shard import Shard
from tests.support import ROOT, SOURCES

PAGE = (ROOT / "docs/recipes.md").read_text("utf-8")


def blocks(heading: str) -> list[str]:
    """The Python of a section."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def run_block(heading: str, number: int = 0) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(blocks(heading)[number], f"docs/recipes.md: {heading}", "exec"), names)  # ours
    return names


def perform(settings: Any, action: Callable[[dict[str, list[Any]]], Any], *jobs: Job) -> Any:
    """Performs a batch as a node would, with the settings of a recipe."""

    class Work(Worker):
        queue_name = "orders"

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> Any:
            return action(payloads_by_id)

    Lowkiq().worker(Work)
    return Performer(Work(), settings, lambda error: None, LoopThread()).perform(
        [*jobs] or [Job("17", [1], (1.0,), 0.0)]
    )


def failing(error: Exception) -> Callable[[Any], None]:
    def fail(_: Any) -> None:
        raise error

    return fail


# ── encryption ──────────────────────────────────────────────────────────────────────────────────────────────────────

OLD, NEW = "1a" * 64, "2b" * 64


def test_encrypted_payloads_are_unreadable_merge_and_come_back(make_app, shard, monkeypatch):
    monkeypatch.setenv("PAYLOAD_KEYS", OLD)
    recipe = run_block("Encrypt payloads")
    app = make_app(dump_payload=recipe["encrypt"], load_payload=recipe["decrypt"])

    @app.worker(queue_name="q", shards_count=1)
    def work(id, payloads): ...

    for _ in range(2):
        work.perform_async([{"id": "a", "payload": {"secret": "plain", "n": 1}}])
    work.perform_async([{"id": "a", "payload": {"n": 1, "secret": "plain"}}])
    (payload,) = shard.queued()["a"].payloads
    assert b"plain" not in payload
    (job,) = work.queries.fetch(["a"])
    assert job.payloads == [{"secret": "plain", "n": 1}]


def test_old_keys_open_what_they_closed_and_across_a_rotation_nothing_merges(monkeypatch):
    monkeypatch.setenv("PAYLOAD_KEYS", OLD)
    before = run_block("Encrypt payloads")["encrypt"]({"n": 1})
    monkeypatch.setenv("PAYLOAD_KEYS", f"{NEW},{OLD}")
    rotated = run_block("Encrypt payloads")
    after = rotated["encrypt"]({"n": 1})
    assert before != after and rotated["decrypt"](before) == rotated["decrypt"](after) == {"n": 1}
    monkeypatch.setenv("PAYLOAD_KEYS", NEW)
    with pytest.raises(ValueError, match="no key"):
        run_block("Encrypt payloads")["decrypt"](before)


# ── Sentry, New Relic ───────────────────────────────────────────────────────────────────────────────────────────────


def test_sentry_hears_of_errors_with_their_queue_and_ids():
    import sentry_sdk
    from sentry_sdk.transport import Transport

    class InMemory(Transport):
        events: ClassVar[list[Any]] = []

        def capture_envelope(self, envelope: Any) -> None:
            InMemory.events += [item.payload.json for item in envelope.items if item.headers["type"] == "event"]

    recipe = run_block("Errors to Sentry")
    # Its integrations patch frameworks for the rest of this process: FastAPI, for one, then reads each body.
    none: dict[str, Any] = {"default_integrations": False, "auto_enabling_integrations": False}
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=InMemory, **none)
    try:
        settings = recipe["app"].settings
        perform(settings, failing(KeyError("no")))
        perform(settings, failing(PartialFailure({"17": ValueError("bad")})))
        perform(settings, failing(Snooze(5)))
        assert perform(settings, lambda _: None) is None
    finally:
        sentry_sdk.init(None, **none)
    one, partly = InMemory.events
    assert one["exception"]["values"][0]["type"] == "KeyError" and one["tags"] == {"queue": "orders"}
    assert one["contexts"]["lowkiq"] == {"ids": ["17"], "retry_count": -1}
    assert partly["exception"]["values"][0]["type"] == "ValueError" and partly["tags"] == {
        "queue": "orders",
        "id": "17",
    }


def test_new_relic_has_a_transaction_of_each_batch(tmp_path):
    """Its agent in developer mode, which reports to nobody; in a process of its own, as it patches what is imported."""
    program = tmp_path / "program.py"
    program.write_text(
        blocks("Transactions of New Relic")[0]
        + textwrap.dedent(
            """
            import json
            from lowkiq import Worker
            from lowkiq.handlers.loop_thread import LoopThread
            from lowkiq.handlers.performer import Performer
            from lowkiq.job import Job

            start_agent()
            seen = {}

            class Work(Worker):
                queue_name = "orders"

                def perform(self, payloads_by_id):
                    transaction = newrelic.agent.current_transaction()
                    seen.update(name=transaction.name, group=transaction.group, background=transaction.background_task)
                    seen["attributes"] = dict(transaction._custom_params)

            app.worker(Work)
            performer = Performer(Work(), app.settings, lambda error: None, LoopThread())
            assert performer.perform([Job("17", [1, 2], (1.0, 2.0), 0.0)]) is None
            print(json.dumps(seen))
            """
        )
    )
    environment = os.environ | {
        "PYTHONPATH": SOURCES, "NEW_RELIC_DEVELOPER_MODE": "true", "NEW_RELIC_LICENSE_KEY": "0" * 40,
        "NEW_RELIC_APP_NAME": "test", "NEW_RELIC_LOG": "stderr",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "name": "orders", "group": "Lowkiq", "background": True, "attributes": {"ids": "17", "payloads": 2},
    }  # fmt: skip


# ── connections, logs ───────────────────────────────────────────────────────────────────────────────────────────────


def test_inherited_connections_are_dropped_and_not_closed(monkeypatch, tmp_path):
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/db")
    recipe = run_block("Connections of a database")
    engine, settings = recipe["engine"], recipe["app"].settings
    with engine.connect() as connection:
        inherited = connection.connection.dbapi_connection
    settings.on_server_init()
    with engine.connect() as connection:
        assert connection.connection.dbapi_connection is not inherited
    assert inherited.execute("SELECT 1").fetchone() == (1,)
    order_sync = recipe["app"].workers["order_sync"]
    assert (
        Performer(order_sync(), settings, lambda e: None, LoopThread()).perform([Job("17", ["x"], (1.0,), 0.0)]) is None
    )
    assert engine.pool.checkedout() == 0
    settings.before_fork()
    inherited.close()
    engine.dispose()


def test_lines_of_the_log_are_tagged():
    import structlog

    seen: list[Any] = []
    settings = run_block("Tag the log")["app"].settings
    job = Job("17", [1], (1.0,), 0.0, tags=("eu",))
    perform(settings, lambda _: seen.append(structlog.contextvars.get_contextvars()), job)
    assert seen == [{"tenants": ["eu"]}] and structlog.contextvars.get_contextvars() == {}


def test_records_of_the_standard_library_are_tagged():
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        run_block("Tag the log", 1)
        (handler,) = [handler for handler in root.handlers if handler not in before]
        record = logging.LogRecord("job", logging.WARNING, __file__, 1, "late", None, None)
        variables = copy_context()
        variables.run(log_fields.bind_shard, Shard("lowkiq", "orders", 3, 5), "n")
        variables.run(log_fields.bind_batch, [Job("17", [1], (1.0,), 0.0)])
        assert variables.run(handler.filter, record)
        assert handler.format(record) == "WARNING orders/['17']/1 late"
        assert handler.filter(record) and handler.format(record) == "WARNING - late"
    finally:
        root.handlers = before
