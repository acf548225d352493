"""Orders, and what the ERP has of them."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order, which changes."""

    state = models.CharField(max_length=20, default="new")
    version = models.PositiveIntegerField(default=0)


class Mirrored(models.Model):
    """A version of an order that the ERP was told of, in the order in which it was."""

    order_id = models.BigIntegerField()
    version = models.PositiveIntegerField()
