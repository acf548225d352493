"""The application of a Django project: a Lowkiq with the settings of `settings.LOWKIQ`, whose pushes can be kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, get_type_hints

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

from lowkiq.app import Lowkiq
from lowkiq.django.connections import with_fresh_connections
from lowkiq.errors import SettingsError, short
from lowkiq.job import NewJob, Pushed
from lowkiq.settings import Settings
from lowkiq.worker import Worker

#: The setting of Django that has ours.
NAME: Final = "LOWKIQ"
#: Settings whose values are no functions: theirs are never taken for the path of one.
_PLAIN: Final = {name for name, hint in get_type_hints(Settings).items() if hint in {int, float, str}}#: Pushes that are kept here and now, if any are.
_kept: ContextVar[list[Push] | None] = ContextVar("lowkiq_kept_pushes", default=None)


class Push(NamedTuple):
    """Jobs that were checked, for a later push."""

    worker: type[Worker[Any]]
    jobs: list[NewJob]


class DjangoApp(Lowkiq):
    """An application of which somebody can learn what a call would push, instead of having it pushed."""

    def push(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed:
        """Queues jobs, or keeps them; either way they are validated now."""
        kept = _kept.get()
        if kept is None:
            return super().push(worker, jobs)
        if not isinstance(jobs, Mapping | str | bytes):
            jobs = list(jobs)
        self._encode(worker, jobs)
        kept.append(Push(worker, list(jobs)))
        return Pushed(0, 0)

    @staticmethod
    def pushes_of(call: Callable[[], object]) -> list[Push]:
        """What a call would push. Raises what it raises: InvalidJob, say."""
        kept: list[Push] = []
        token = _kept.set(kept)
        try:
            call()
        finally:
            _kept.reset(token)
        return kept


@functools.cache
def get_app() -> DjangoApp:
    """
    The application of this project, made of `settings.LOWKIQ` at the first call. Functions can be given by their path,
    such as "shop.hooks.on_server_init", as settings can't import them.

    Raises:
        SettingsError: names the setting, its value and what it may be.
    """
    settings = given_settings()
    try:
        found = {name: value if name in _PLAIN else _imported(name, value) for name, value in settings.items()}
        middlewares = (with_fresh_connections, *found.pop("server_middlewares", ()))
        return DjangoApp(**found, server_middlewares=middlewares)
    except SettingsError as error:
        raise SettingsError(f"{NAME} in Django's settings: {error}") from error


def given_settings() -> Mapping[str, Any]:
    """The settings as the project gives them. Raises SettingsError if that is no dictionary of names."""
    settings = getattr(django_settings, NAME, {})
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise SettingsError(f"{NAME} in Django's settings must be a dictionary, not {short(settings)}")
    return settings


def _imported(name: str, value: Any) -> Any:
    """The function of a path, or functions of several."""
    if isinstance(value, list | tuple):
        return tuple(_imported(name, one) for one in value)
    if not isinstance(value, str):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        raise SettingsError(f"{name}: can't import {short(value)}: {error}") from error
