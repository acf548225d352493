"""Awaited pushes of the tests here."""

from __future__ import annotations

import asyncio

from lowkiq import Lowkiq


def work(payloads_by_id): ...


def run(app: Lowkiq, awaitable):
    """What it gives, in an event loop of its own."""

    async def main():
        try:
            return await awaitable
        finally:
            await app.aclose()

    return asyncio.run(main())


def payloads(worker, *ids):
    return {job.id: job.payloads for job in worker.queries.fetch(list(ids))}


async def together(worker, *jobs):
    return await asyncio.gather(*(worker.aperform_async([job]) for job in jobs))
