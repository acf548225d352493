"""
Lowkiq in a Django project: `INSTALLED_APPS = ["lowkiq.django"]`, settings in `LOWKIQ = {…}`, jobs in each app's
`jobs.py`. It needs the extra `django`.

`from lowkiq.django import app` is the application of the project, a Lowkiq, made of the settings when it is first asked
for.

Nothing is imported here before it is asked for, as Django imports this before its apps are ready.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowkiq.app import Lowkiq
    from lowkiq.django.application import get_app
    from lowkiq.django.on_commit import push_on_commit
    from lowkiq.django.outbox import push_by_outbox

    app: Lowkiq

# Without `app`: to look at it would make it.
__all__ = ["get_app", "push_by_outbox", "push_on_commit"]

#: Modules of the names.
_MODULES = {"get_app": "application", "push_by_outbox": "outbox", "push_on_commit": "on_commit"}


def __getattr__(name: str) -> Any:
    if name == "app":
        return importlib.import_module(f"{__name__}.application").get_app()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
