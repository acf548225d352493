"""The parts of a web view that pages and API share."""

from __future__ import annotations

from dataclasses import dataclass

from lowkiq import Lowkiq
from lowkiq.web.backend import Backend
from lowkiq.web.bulk_runner import BulkRunner
from lowkiq.web.security.access import Access
from lowkiq.web.security.guesses import Guesses
from lowkiq.web.snapshot import Snapshots


@dataclass(frozen=True)
class View:
    """One web view of one application."""

    app: Lowkiq
    backend: Backend
    snapshots: Snapshots
    bulks: BulkRunner
    access: Access
    guesses: Guesses
    #: Nothing can be changed; buttons need not be shown.
    read_only: bool
    #: False: payloads may hold secrets, so only their sizes are shown.
    payloads: bool
