"""The `lowkiq` command."""

from lowkiq.cli.commands import main

__all__ = ["main"]
