"""Settings of a project that has tasks, and no app of its own."""

from __future__ import annotations

_LOWKIQ = {"BACKEND": "lowkiq.django.tasks.LowkiqBackend"}

USE_TZ = True
INSTALLED_APPS = ["lowkiq.django"]
LOGGING_CONFIG = None
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {
    "default": _LOWKIQ | {"QUEUES": ["default", "mail"], "OPTIONS": {"max_retry_count": 0}},
    "once": _LOWKIQ | {"OPTIONS": {"max_retry_count": 1}},
    "twice": _LOWKIQ | {"OPTIONS": {"max_retry_count": 2}},
}
