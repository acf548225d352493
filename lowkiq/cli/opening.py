"""What commands share: the application that they name, and how they answer. An error is one line, and an exit code."""

from __future__ import annotations

import functools
import getpass
import inspect
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_type_hints

import msgspec
import typer
from redis.exceptions import RedisError
from rich.table import Table

from lowkiq import Lowkiq, LowkiqError, SettingsError, environment, log
from lowkiq.cli import tables
from lowkiq.cli.given import AsJson, Require
from lowkiq.environment import ExitCode, code_of_import
from lowkiq.errors import UnknownQueue, import_refusal
from lowkiq.importing import load_app
from lowkiq.process.ending import USUAL, finish
from lowkiq.process.place import EMBEDDED_SOCKET
from lowkiq.redaction import redact
from lowkiq.transport.errors import explained


class Answer(NamedTuple):
    """What a command has found or done."""

    #: For programs: whatever JSON can hold.
    data: Any
    #: For people. Lines, or tables, that come one by one are only made for them.
    shown: str | Table | Iterable[str | Table]
    #: False: the command exits with 1.
    is_well: bool = True


def answering(act: Callable[..., Answer | None]) -> Callable[..., None]:
    """
    Makes a command of a function that is given the application, and then what the command line says: it has the options
    -r and --json as well, and prints the answer. None: there is nothing to print.
    """
    hints = get_type_hints(act, include_extras=True)
    _, *own = inspect.signature(act).parameters.values()
    takes_json = any(one.name == "as_json" for one in own)
    parameters = [
        _parameter("context", typer.Context),
        *(one.replace(annotation=hints[one.name]) for one in own if one.name != "as_json"),
        _parameter("require", Require, None),
        _parameter("as_json", AsJson, False),
    ]

    @functools.wraps(act)
    def command(context: typer.Context, require: str | None = None, as_json: bool = False, **given: Any) -> None:
        with opened_app(require or context.obj) as app:
            answer = act(app, **given, **({"as_json": as_json} if takes_json else {}))
            if answer is None:
                return
            if as_json:
                typer.echo(as_text(answer.data))
            else:
                shown = answer.shown
                for one in [shown] if isinstance(shown, str | Table) else shown:
                    tables.show(one) if isinstance(one, Table) else typer.echo(one)
        if not answer.is_well:
            raise typer.Exit(ExitCode.FAILED)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def as_text(data: Any) -> str:
    """What a program is told."""
    return json.dumps(msgspec.to_builtins(data))


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)


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


def configure_log() -> None:
    """Log to LOWKIQ_LOG_FILE, else to stderr; of variables that are nearly right it tells first."""
    path = environment.find("--log-file", None, os.environ)
    try:
        log.configure(path=Path(path.text).absolute() if path else None)
    except OSError as error:
        raise SettingsError(f"{path}: {error}") from error
    log.warn_of_misspelt(os.environ)


def leave(code: int, seconds: float = USUAL) -> NoReturn:
    """
    Ends as Python does, with what the application has registered for the end; but threads that a drain has abandoned,
    or that wait for Redis, do not hold the process.
    """
    os._exit(finish(code, seconds))


def who() -> str:
    """The person at the command line."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container's user may have no name
        return f"user {os.getuid()}@{socket.gethostname()}"
