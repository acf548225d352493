"""Takes the docs' pictures of the web view: `make screenshots`. A real shop under a load of two minutes."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.progress import track

from lowkiq import Lowkiq
from tests.browser.shop import Shop
from tests.support import ROOT

IMAGES = ROOT / "docs/images"
SECONDS = 120
SIZE = {"width": 1280, "height": 800}

APP = """
import random, time
from lowkiq import Lowkiq, Worker
from tests.support import ROOT

app = Lowkiq()


@app.worker(queue_name="orders", shards_count=24, batch_size=5, max_retry_count=3)
class Orders(Worker):
    def retry_in(self, retry_count):
        return 20 * (retry_count + 1)

    def perform(self, payloads_by_id):
        time.sleep(random.uniform(0.01, 0.4))
        if any(id.endswith("13") for id in payloads_by_id):
            raise TimeoutError(f"the ERP did not answer within {random.randint(5, 30)} s")


@app.worker(queue_name="invoices", shards_count=8, max_retry_count=1)
def invoices(payloads_by_id):
    time.sleep(random.uniform(0.2, 2))
    if random.random() < 0.05:
        raise LookupError(f"no customer {random.randint(1000, 9999)}")


@app.worker(queue_name="mail", shards_count=8)
def mail(payloads_by_id):
    time.sleep(0.02)
"""


def main() -> None:
    """Writes docs/images/PAGE-SCHEME.png."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shop-") as directory, Shop(Path(directory), app=APP) as shop:
        ending = threading.Event()
        load = threading.Thread(target=_push, args=(shop.app.settings.redis_url, ending))
        load.start()
        for _ in track(range(SECONDS), "letting it run"):
            time.sleep(1)
        try:
            _take(shop)
        finally:
            ending.set()
            load.join()


def _push(url: str, ending: threading.Event) -> None:
    app = Lowkiq(redis_url=url)
    orders, invoices, mail = (
        app.worker(queue_name=name, shards_count=count)(lambda _: None)
        for name, count in (("orders", 24), ("invoices", 8), ("mail", 8))
    )
    number = 0
    while not ending.wait(0.2):
        number += 1
        wave = 14 + int(10 * random.random()) + 20 * (number % 200 < 40)
        states = ("paid", "packed", "sent")
        orders.perform_async(
            {
                "id": f"order-{random.randint(1, 900)}",
                "payload": {"change": number * 100 + n, "state": random.choice(states)},
            }
            for n in range(wave)
        )
        mail.perform_async({"id": f"user-{random.randint(1, 99)}@example.com", "payload": number} for _ in range(8))
        invoices.perform_async([{"id": f"invoice-{number}", "payload": {"total": "149.00", "due": "2026-12-01"}}])
    app.close()


def _take(shop: Shop) -> None:
    job = shop.orders.queries.morgue_rev_range_by_updated_at(limit=1) or shop.orders.queries.range_by_retry_count(0)
    pages = {
        "overview": "/",
        "nodes": "/nodes",
        "queue": "/queues/orders?view=retries",
        "morgue": "/queues/orders?view=morgue",
        "job": f"/queues/orders/job?id={job[0].id}",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(shop.enter())
            for name, path in pages.items():
                page.goto(shop.url + path)
                page.locator("#light[data-state=live]").wait_for()
                page.screenshot(path=IMAGES / f"{name}-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
