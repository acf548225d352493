"""The Django app: finds jobs, and checks settings."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import register
from django.utils.module_loading import autodiscover_modules

from lowkiq.django.application import get_app
from lowkiq.django.checks import check_settings
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
