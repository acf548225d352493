"""`manage.py lowkiq`: the supervisor, or a command of `lowkiq`, for this project."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from lowkiq.django.application import get_app, given_settings
from lowkiq.errors import SettingsError

#: The module of the application, as a node imports it.
APP: Final = "lowkiq.django.site"
#: Options that are Django's, each with a value, and have been taken account of.
_OF_DJANGO: Final = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """Becomes the process that it runs: nothing of Django is left in it, no thread and no connection."""

    help = (
        "Runs nodes: `manage.py lowkiq --nodes 4`, with all options of lowkiq-supervisor (--help). Also its commands, "
        "and those of lowkiq: `manage.py lowkiq status`, `manage.py lowkiq stats`."
    )
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            self.execute_as(list(_own(argv[2:])))
        except (CommandError, SettingsError) as error:
            self.stderr.write(f"lowkiq: {error}", self.style.ERROR)
            sys.exit(2)

    def handle(self, *args: Any, **_: Any) -> None:
        """Is what call_command calls, with the words of the command line."""
        self.execute_as([str(word) for word in args])

    def execute_as(self, words: list[str]) -> NoReturn:
        """Replaces this process. Raises SettingsError for settings that can't be used."""
        get_app()
        from lowkiq.cli.commands import COMMANDS, made  # noqa: PLC0415 (only here they are needed)

        if words and words[0] in COMMANDS:
            main = "from lowkiq.cli import main; main()"
            takes_app = any(option.name == "require" for option in made(words[0]).params)
            words = [words[0], *(("-r", APP) if takes_app else ()), *words[1:]]
        else:
            main = "from lowkiq_supervisor.entry import main; main()"
            # Before a subcommand it would be in the way.
            words = words if words and not words[0].startswith("-") else ["-r", APP, *words]
        _tell_settings()
        connections.close_all()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execv(sys.executable, [sys.executable, "-c", main, *words])  # noqa: S606 (no shell is meant)


def _own(words: Iterable[str]) -> Iterable[str]:
    """The words of a command line without Django's own options."""
    words = iter(words)
    for word in words:
        name, _, value = word.partition("=")
        if name not in _OF_DJANGO:
            yield word
        elif not value:
            next(words, None)


def _tell_settings() -> None:
    """
    Settings that a supervisor goes by, and a command that imports no application, by the environment; and where to
    import from: manage.py's directory, which need not be the current one.
    """
    for name, value in given_settings().items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            os.environ[f"LOWKIQ_{name.upper()}"] = str(value)
    places = [sys.path[0], *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
