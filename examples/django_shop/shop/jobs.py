"""Jobs of the shop."""

from __future__ import annotations

from dataclasses import dataclass

from lowkiq.django import app

from .models import Mirrored


@dataclass
class Change:
    """An order as it is now."""

    order_id: int
    version: int


@app.worker(id=lambda change: change.order_id)
def mirror(order_id: int, changes: list[Change]) -> None:
    """Tells the ERP of an order's versions."""
    for change in changes:
        Mirrored.objects.create(order_id=order_id, version=change.version)


@app.worker(queue_name="mirror-apart", isolation="process")
def mirror_apart(order_id: int, versions: list[int]) -> None:
    """The same in a process of its own."""
    for version in versions:
        Mirrored.objects.create(order_id=order_id, version=version)


@app.worker(queue_name="mirror-async")
async def mirror_async(order_id: int, versions: list[int]) -> None:
    """The same on the event loop."""
    for version in versions:
        await Mirrored.objects.acreate(order_id=order_id, version=version)
