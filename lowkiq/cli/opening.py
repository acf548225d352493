"""Opens the application that a command names. An error is one line, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer
from redis.exceptions import RedisError

from lowkiq import Lowkiq, LowkiqError, SettingsError
from lowkiq.environment import ExitCode, code_of_import
from lowkiq.errors import UnknownQueue, import_refusal
from lowkiq.importing import load_app
from lowkiq.process.place import EMBEDDED_SOCKET
from lowkiq.redaction import redact
from lowkiq.transport.errors import explained

_WHICH = "The application, or its file; the current directory is importable."
Require = Annotated[str | None, typer.Option("-r", "--require", "--app", metavar="MODULE[:ATTR]", help=_WHICH)]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


@contextmanager
def opened_app(require: str | None) -> Iterator[Lowkiq]:
    """The application that was named, else one that only knows where Redis is. An error is one line, and the end."""
    with clear_errors():
        app = loaded(require) if require else Lowkiq()
        try:
            yield app
        except RedisError as error:
            hint = " (it runs while lowkiq-supervisor does)" if app.settings.redis_url.endswith(EMBEDDED_SOCKET) else ""
            fail(f"can't use Redis at {redact(app.settings.redis_url)}: {explained(error)}{hint}", ExitCode.FAILED)
        finally:
            app.close()


def loaded(require: str) -> Lowkiq:
    """The application of that name. One that can't be imported is an error in one line, as for a supervisor."""
    try:
        return load_app(require)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the module is the user's)
        fail(import_refusal(require, error), code_of_import(error))


@contextmanager
def clear_errors() -> Iterator[None]:
    try:
        yield
    except LowkiqError as error:
        is_named_wrongly = isinstance(error, SettingsError | UnknownQueue)
        fail(str(error), ExitCode.USAGE if is_named_wrongly else ExitCode.FAILED)


def fail(message: str, code: int) -> NoReturn:
    typer.echo(f"lowkiq: {message}", err=True)
    raise typer.Exit(code)
