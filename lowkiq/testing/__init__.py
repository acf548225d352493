"""
Tests of applications without Redis: what was pushed, what would run when, and what becomes of it.

Its store is the model that random histories of Redis's own scripts are compared with, and a node's own code performs:
so it does what the real one does. It is one process that runs a batch at a time: there are no nodes, no leases, no
other processes. docs/testing.md has more.
"""

from __future__ import annotations

from lowkiq.testing.entries import aperform, fake, inline, perform
from lowkiq.testing.fake import Fake
from lowkiq.testing.outcome import Outcome
from lowkiq.testing.queues import Push

__all__ = ["Fake", "Outcome", "Push", "aperform", "fake", "inline", "perform"]
