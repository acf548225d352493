"""The shop's tasks, as Django has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django

from lowkiq.django.tasks import ordered_by

from .models import Mirrored

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
@ordered_by("order_id")
def note(order_id: int, version: int) -> None:
    """Tells the ERP of an order's version, in order."""
    if version < 0:
        raise ValueError(f"no version {version}")
    Mirrored.objects.create(order_id=order_id, version=version)


@task
async def anote(order_id: int, version: int) -> None:
    """The same, in any order."""
    await Mirrored.objects.acreate(order_id=order_id, version=version)


@task(takes_context=True)
def attempt(context: Any, order_id: int) -> None:
    """Tells which attempt it is."""
    Mirrored.objects.create(order_id=order_id, version=context.attempt)
