"""Settings of a project that has tasks, and neither an app of its own nor a database."""

from __future__ import annotations

_LOWKIQ = {"BACKEND": "lowkiq.django.tasks.LowkiqBackend"}

USE_TZ = True
INSTALLED_APPS = ["lowkiq.django"]
LOGGING_CONFIG = None
TASKS = {
    "default": _LOWKIQ | {"QUEUES": ["default", "mail"], "OPTIONS": {"max_retry_count": 1}},
    "never": _LOWKIQ | {"OPTIONS": {"max_retry_count": 0}},
    "twice": _LOWKIQ | {"OPTIONS": {"max_retry_count": 2}},
}
