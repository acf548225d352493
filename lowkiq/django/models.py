"""Tables: the outbox, and the permissions of the view."""

from __future__ import annotations

from django.db import models


class Operator(models.Model):
    """No table: permissions need a model."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (("view", "Can look at Lowkiq's queues and jobs"), ("change", "Can act on Lowkiq's jobs"))
