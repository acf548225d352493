"""What `manage.py check` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error

from lowkiq.django.application import get_app
from lowkiq.errors import SettingsError


def check_settings(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Tells of a setting that can't be used."""
    if app_configs is not None and not any(config.label == "lowkiq" for config in app_configs):
        return []
    try:
        get_app()
    except SettingsError as error:
        return [Error(str(error), hint="docs/settings.md has every setting.", id="lowkiq.E001")]
    return []
