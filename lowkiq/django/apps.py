"""The Django app: finds jobs, and checks settings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import autodiscover_modules

from lowkiq.django.application import get_app
from lowkiq.errors import SettingsError


class LowkiqConfig(AppConfig):
    """Imports `jobs.py` of every installed app, when their models are there."""

    name = "lowkiq.django"
    label = "lowkiq"
    verbose_name = "Lowkiq"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register(check_settings)
        try:
            get_app()
        except SettingsError:
            return  # `manage.py check` tells, and so does whatever asks for the application
        autodiscover_modules("jobs")
        if tasks := getattr(settings, "TASKS", None):
            # Before Django 6.0 it needs a package, which a project without tasks need not have.
            import_module("lowkiq.django.tasks").register_backends(tasks)


def check_settings(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """What `manage.py check` says of a setting that can't be used."""
    if app_configs is not None and not any(config.label == "lowkiq" for config in app_configs):
        return []
    try:
        get_app()
    except SettingsError as error:
        return [Error(str(error), hint="docs/settings.md has every setting.", id="lowkiq.E001")]
    return []
