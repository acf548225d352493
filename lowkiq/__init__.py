"""
Lowkiq: ordered background jobs on Redis. Jobs of one id run one at a time and in order; nothing accepted is lost.
"""

from lowkiq.app import Lowkiq
from lowkiq.errors import (
    InvalidJob,
    LowkiqError,
    NewerLayout,
    PartialFailure,
    PushFailed,
    SettingsError,
    ShardsCountMismatch,
)
from lowkiq.handlers.context import Context, current
from lowkiq.job import Job, NewJob, Pushed
from lowkiq.version import VERSION
from lowkiq.worker import Worker

__version__ = VERSION

__all__ = [
    "Context",
    "InvalidJob",
    "Job",
    "Lowkiq",
    "LowkiqError",
    "NewJob",
    "NewerLayout",
    "PartialFailure",
    "PushFailed",
    "Pushed",
    "SettingsError",
    "ShardsCountMismatch",
    "Worker",
    "current",
]
