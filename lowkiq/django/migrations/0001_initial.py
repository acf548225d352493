"""The outbox's table, and the permissions of the view."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="Operator",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))
            ],
            options={
                "permissions": (
                    ("view", "Can look at Lowkiq's queues and jobs"),
                    ("change", "Can act on Lowkiq's jobs"),
                ),
                "managed": False,
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", models.TextField()),
                ("job_id", models.TextField()),
                ("job", models.TextField()),
                ("tries", models.PositiveIntegerField(default=0)),
                ("error", models.TextField(null=True)),
                ("retry_at", models.FloatField(default=0)),
            ],
            options={
                "db_table": "lowkiq_outbox",
                "indexes": [
                    models.Index(
                        fields=["queue", "job_id"],
                        name="lowkiq_outbox_refused",
                        condition=models.Q(("retry_at__gt", 0)),
                    )
                ],
            },
        ),
    ]
