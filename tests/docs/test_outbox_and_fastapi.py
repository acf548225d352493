"""docs/outbox.md and docs/fastapi.md: the blocks of a page are one program, and do what the page says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import ROOT, SOURCES
from tests.typing.examples import blocks

#: What is asked of a page after its blocks, and printed.
ASKED = {
    "docs/outbox.md": """
while relay.run_once():
    pass
with Session(engine) as session:
    assert session.execute(select(outbox.table)).all() == []
print(sorted((job.id, job.payloads) for job in order_sync.queries.fetch([17, 18, 19])))
""",
    "docs/fastapi.md": """
import asyncio
import httpx


async def look() -> None:
    for app in (site, api):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            if app is api:
                assert (await client.put("/orders/1?status=paid")).status_code == 200
                continue
            assert (await client.get("/ops/lowkiq/")).status_code == 401
            assert (await client.get("/ops/lowkiq/", headers={"X-User": "ann"})).status_code == 200
    async with site.router.lifespan_context(site):
        pass


asyncio.run(look())
print(index.queries.fetch([1])[0].payloads)
""",
}
PRINTED = {
    "docs/outbox.md": "[('17', [1, 2]), ('18', [1]), ('19', [1])]",
    "docs/fastapi.md": "['paid']",
}


@pytest.mark.parametrize("page", ASKED)
def test_the_blocks_of_a_page_are_a_program_that_works(page, app, tmp_path):
    (tmp_path / "page.py").write_text("\n".join([*blocks(page), ASKED[page]]))
    environment = os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace, "PYTHONPATH": SOURCES,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == PRINTED[page]


@pytest.mark.parametrize("page", ASKED)
def test_a_page_type_checks(page, tmp_path):
    (tmp_path / "page.py").write_text("\n".join(blocks(page)))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache", "page.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(mypy, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
