"""Chromium: which of this machine, and how it is started."""

from __future__ import annotations

import shutil

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
#: It runs as root in containers, and must ask nobody but the page.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]


def find_chromium() -> str | None:
    """Its path; None if there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)
