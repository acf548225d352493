"""The application of a Django project: a Lowkiq with the settings of `settings.LOWKIQ`, whose pushes can be kept."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, get_type_hints

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

from lowkiq.app import Lowkiq
from lowkiq.django.connections import with_fresh_connections
from lowkiq.errors import SettingsError, short
from lowkiq.job import EncodedJob, NewJob, Pushed
from lowkiq.settings import Settings
from lowkiq.worker import Target, Worker, worker_of

#: The setting of Django that has ours.
NAME: Final = "LOWKIQ"
#: Settings whose values are functions: a text is the path of one.
_FUNCTIONS: Final = {name for name, hint in get_type_hints(Settings).items() if hint not in {int, float, str}}
#: Where pushes are kept in place of being made, while somebody asks what a call would push.
_kept: ContextVar[list[Push] | None] = ContextVar("lowkiq_kept_pushes", default=None)


class Push(NamedTuple):
    """Validated jobs, for a later push."""

    worker: type[Worker[Any]]
    jobs: list[EncodedJob]


class DjangoApp(Lowkiq):
    """An application of which somebody can learn what a call would push, instead of having it pushed."""

    def _push(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed:
        kept = _kept.get()
        if kept is None:
            return super()._push(worker, jobs)
        kept.append(Push(worker, self.validated(worker, jobs)))
        return Pushed(0, 0)

    def pushes_of(self, target: Target, jobs: Any = (), payloads: Iterable[Any] = ()) -> list[Push]:
        """
        What `worker.perform_async` of these jobs would push, or `worker.push` of these payloads: by an override of
        theirs, too, and within client middlewares.

        Raises:
            InvalidJob: names the job and the field.
            SettingsError: the worker is another application's.
        """
        worker = worker_of(target)
        if worker.registered_app() is not self:
            raise SettingsError(f"{worker.__name__} is not of Django's application: `from lowkiq.django import app`")
        kept: list[Push] = []
        payloads = list(payloads)
        token = _kept.set(kept)
        try:
            if payloads:
                worker.push(*payloads)
            else:
                worker.perform_async(jobs)
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
        found = {name: _imported(name, value) if name in _FUNCTIONS else value for name, value in settings.items()}
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
