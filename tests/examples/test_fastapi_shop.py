"""The shop on FastAPI, for real: a site under uvicorn, a node, and each kind of database."""

from __future__ import annotations

import os
import signal

import httpx
import pytest

from tests.postgres import postgres  # noqa: F401 (a fixture)
from tests.support import LOWKIQ, SOURCES, free_port, python_processes, wait_until

URL = "/ops/lowkiq"


@pytest.fixture(params=["sqlite", "postgresql"])
def start(request, app, tmp_path):
    """start(*arguments) → a process of Python; all end with the test."""
    database = f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}"
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
        database = server.url(server.new_database())
    environment = os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace, "DATABASE_URL": database,
        "PYTHONPATH": SOURCES, "SHOP_PASSWORD": "open sesame",
    }  # fmt: skip
    with python_processes(environment, tmp_path / "log") as start:
        yield start


@pytest.fixture
def site(start):
    """A client of the site; `site.process` is its process."""
    port = free_port()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        serve = ("-m", "uvicorn", "--port", str(port), "examples.fastapi_shop:site")

        def answers():
            try:
                return client.get("/orders/1/index").status_code == 200
            except httpx.TransportError:
                return False

        def again():
            client.process = start(*serve)
            wait_until(answers)

        client.again = again
        again()
        yield client


def test_a_change_reaches_the_index_and_the_view_is_for_staff(start, site):
    start(*LOWKIQ, "-r", "examples.fastapi_shop:jobs")
    for status in ("paid", "packed", "sent"):
        assert site.put("/orders/1", params={"status": status}).status_code == 200
    wait_until(lambda: site.get("/orders/1/index").json() == "3 sent")

    assert site.get(f"{URL}/").status_code == 401
    page = site.get(f"{URL}/queues/search", auth=("ann", "open sesame"))
    assert page.status_code == 200
    pause = f"{URL}/api/v1/queues/search/pause"
    assert site.post(pause, json={}, auth=("ann", "open sesame")).json() == {"detail": "only admin may change jobs"}
    token = site.get(f"{URL}/api/v1/token", auth=("admin", "open sesame")).json()["token"]
    done = site.post(pause, json={}, auth=("admin", "open sesame"), headers={"X-Lowkiq-Token": token})
    assert done.status_code == 200, done.text


def test_a_site_that_is_killed_after_a_commit_has_lost_nothing(start, site):
    assert site.put("/orders/2", params={"status": "paid"}).json() == 1
    site.process.kill()
    site.process.wait(60)
    site.again()
    start(*LOWKIQ, "-r", "examples.fastapi_shop:jobs")
    wait_until(lambda: site.get("/orders/2/index").json() == "1 paid")
    site.process.send_signal(signal.SIGTERM)
    assert site.process.wait(60) in {0, -signal.SIGTERM}
