"""Lowkiq: ordered background jobs on Redis. Jobs of one id run one at a time and in order; nothing accepted is lost."""

from __future__ import annotations

import importlib

from lowkiq.version import VERSION

TYPE_CHECKING = False  # typing itself would be a third of what a probe of the supervisor takes
if TYPE_CHECKING:
    from typing import Any

    from lowkiq.app import Lowkiq
    from lowkiq.errors import (
        Bury,
        Decision,
        Discard,
        InvalidJob,
        LowkiqError,
        NewerLayout,
        PartialFailure,
        PushFailed,
        RateLimited,
        RetryIn,
        SettingsError,
        ShardsCountMismatch,
        Snooze,
    )
    from lowkiq.fewer import Debounce
    from lowkiq.handlers.context import Context, current
    from lowkiq.job import Job, NewJob, Pushed
    from lowkiq.policies import Exponential, Fixed, Polynomial
    from lowkiq.rate import Rate
    from lowkiq.worker import Worker

__version__ = VERSION

__all__ = [
    "Bury",
    "Context",
    "Debounce",
    "Decision",
    "Discard",
    "Exponential",
    "Fixed",
    "InvalidJob",
    "Job",
    "Lowkiq",
    "LowkiqError",
    "NewJob",
    "NewerLayout",
    "PartialFailure",
    "Polynomial",
    "PushFailed",
    "Pushed",
    "Rate",
    "RateLimited",
    "RetryIn",
    "SettingsError",
    "ShardsCountMismatch",
    "Snooze",
    "Worker",
    "current",
]

#: Modules of the names that are not errors. They are imported when a name is first asked for: so the supervisor can
#: import a leaf of this package without a Redis client coming along.
_MODULES = {
    "Context": "handlers.context",
    "Debounce": "fewer",
    "Exponential": "policies",
    "Fixed": "policies",
    "Job": "job",
    "Lowkiq": "app",
    "NewJob": "job",
    "Polynomial": "policies",
    "Pushed": "job",
    "Rate": "rate",
    "Worker": "worker",
    "current": "handlers.context",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
