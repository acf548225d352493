"""The API against its own document: Schemathesis asks all that it describes, and much that it rules out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lowkiq import Lowkiq
from tests.harness import Supervised
from tests.support import python_with
from tests.web.conftest import TOKEN
from tests.web.test_server import SERVER, url_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

#: With these a request that its schema allows may be refused, as no schema says it: which fields go together, what a
#: cursor, an undo or the fields of cron are, and what recurs.
CONFIGURATION = """
[[operations]]
include-operation-id = [
  "getJobs", "getStatistics", "getIncidents", "search", "act", "undo", "actOnRecurring", "setRecurring", "setSettings",
]
checks.positive_data_acceptance.enabled = false
"""
#: Wrong credentials are answered late on purpose; here there are many.
QUICK = f"from lowkiq.web.security.guesses import Guesses\nGuesses._delay = lambda *_: 0.0\n{SERVER}"


def test_all_answers_are_those_that_the_document_has(app: Lowkiq, tmp_path: Path) -> None:
    schemathesis = [*python_with("schemathesis==4.32.5"), "-m", "schemathesis.cli"]
    orders = app.worker(queue_name="orders")(lambda _: None)
    orders.perform_async([{"id": n, "tags": ["eu"], "delay": 3_600 * (n % 2)} for n in range(50)])
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    environment = {
        "LOWKIQ_REDIS_URL": app.settings.redis_url,
        "LOWKIQ_NAMESPACE": app.settings.namespace,
        "LOWKIQ_WEB_TOKEN": TOKEN,
    }
    words = (
        "--header", f"Authorization: Bearer {TOKEN}", "--exclude-path", "/api/v1/events",  # which does not end
        "--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--generation-deterministic",
        "--request-timeout", "60", "--no-color",
    )  # fmt: skip
    with Supervised(tmp_path, ["-c", QUICK], environment) as server:
        done = subprocess.run(
            [*schemathesis, "run", f"{url_of(server)}api/v1/openapi.json", *words],
            cwd=tmp_path, timeout=800, check=False, capture_output=True, text=True,
        )  # fmt: skip
        server.end()
    assert done.returncode == 0, done.stdout + done.stderr
