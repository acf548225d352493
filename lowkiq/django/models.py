"""Tables: the outbox, and what the permissions of the view need."""

from __future__ import annotations

from django.db import models


class OutboxRow(models.Model):
    """A job to be pushed, written in the transaction of the change that it tells of."""

    # Annotated, as their types are known to Django's own plugin of mypy alone.
    id: models.BigAutoField[int, int] = models.BigAutoField(primary_key=True)
    queue: models.TextField[str, str] = models.TextField()
    job_id: models.TextField[str, str] = models.TextField()
    #: In JSON, as it will be pushed.
    job: models.TextField[str, str] = models.TextField()
    #: How often it was refused, why, and the Unix time from which on it is tried again.
    tries: models.PositiveIntegerField[int, int] = models.PositiveIntegerField(default=0)
    error: models.TextField[str | None, str | None] = models.TextField(null=True)
    retry_at: models.FloatField[float, float] = models.FloatField(default=0)

    class Meta:
        db_table = "lowkiq_outbox"
        # The refused ones alone, which are few: so that rows that wait for them are told without reading all.
        indexes = (
            models.Index(fields=["queue", "job_id"], name="lowkiq_outbox_refused", condition=models.Q(retry_at__gt=0)),
        )

    def __str__(self) -> str:
        return f"{self.queue} {self.job_id}"


class Operator(models.Model):
    """No table: permissions need a model."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (("view", "Can look at Lowkiq's queues and jobs"), ("change", "Can act on Lowkiq's jobs"))
