"""The inbox of a process's signals."""

from __future__ import annotations

import os
import signal

import pytest

from lowkiq.process import signals
from lowkiq.process.signals import ONE_PRESS, SignalInbox


def test_ints_of_one_key_are_one_and_a_later_one_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends one to the whole group, and what has started the process passes its own on."""
    now = 100.0
    monkeypatch.setattr(signals, "monotonic", lambda: now)
    with SignalInbox([signal.SIGINT, signal.SIGTERM]) as inbox:
        for later, number, taken in (
            (0.0, signal.SIGINT, [signal.SIGINT]),
            (0.0002, signal.SIGINT, []),
            (0.0, signal.SIGTERM, [signal.SIGTERM]),
            (ONE_PRESS * 0.9, signal.SIGINT, []),
            (ONE_PRESS * 0.9, signal.SIGINT, [signal.SIGINT]),  # who goes on pressing is heard
        ):
            now += later
            os.kill(os.getpid(), number)
            assert inbox.take() == taken
