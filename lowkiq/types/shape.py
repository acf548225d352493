"""Shape: how a worker's function or method is called, as its signature says."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, Final

from lowkiq.errors import SettingsError
from lowkiq.types.annotations import Types, of_batch, of_list, plain_function, resolved

#: What is called with a batch.
Call = Callable[[dict[str, list[Any]]], Any]

_BATCH: Final = "(payloads_by_id), a dict from ids to lists of payloads"
_ONE: Final = "(id, payloads), an id at a time"
#: What the methods are given.
_GIVEN: Final = {"perform": "payloads_by_id", "perform_one": "id, payloads"}
_OF_METHODS: Final = ("self", "cls")
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Shape:
    """Way to call perform: a coroutine function or not, with an id at a time or a batch."""

    is_async: bool = False
    is_one: bool = False
    #: A decorator hides that it is a coroutine function: it may run that to its end by itself.
    is_hidden: bool = False
    #: The worker's own retry_in is given the error, too.
    gives_error: bool = False

    def bind(self, worker: Any) -> Call:
        """The call of one batch, with ids as annotated; of an async worker it returns an awaitable."""
        perform = self.bind_plain(worker)
        return _one(perform) if self.is_one else perform

    def bind_plain(self, worker: Any) -> Callable[..., Any]:
        """The same, but what takes an id at a time is called with that and its payloads, as it is written."""
        perform: Callable[..., Any] = worker.perform_one if self.is_one else worker.perform
        if self.is_hidden:
            perform = _awaited(perform)
        load_id = worker.codec.load_id
        if load_id is None:
            return perform
        return _with_id(perform, load_id) if self.is_one else _with_ids(perform, load_id)


def read_function(label: str, function: Callable[..., Any]) -> tuple[Shape, Types]:
    """
    The shape of a function, and the types that it is annotated with.

    Raises:
        SettingsError: it can't be called with jobs, and says what it may be.
    """
    parameters = _parameters(label, function, f"it may be {_BATCH}, or {_ONE}")
    if parameters and parameters[0].name in _OF_METHODS and inspect.isfunction(function):
        raise SettingsError(
            f"{label} takes {_told(parameters)}, as a method does, and nobody would give it {parameters[0].name}: "
            "put @app.worker above the class, a lowkiq.Worker, and call the method perform or perform_one"
        )
    required = _required(parameters)
    if not 1 <= max(required, min(_most(parameters), 1)) <= 2:  # noqa: PLR2004 (as _ONE has)
        raise SettingsError(f"{label} takes {_told(parameters)}: it may be {_BATCH}, or {_ONE}")
    return _read(label, function, parameters, is_one=required == 2)  # noqa: PLR2004 (as above)


def read_methods(label: str, worker: type, base: type) -> tuple[Shape, Types]:
    """
    The shape of a class with `perform` or `perform_one`, and the types that it is annotated with.

    Raises:
        SettingsError: as `read_function`; or it has both.
    """
    has_batch, has_one = (getattr(worker, name) is not getattr(base, name) for name in ("perform", "perform_one"))
    if has_batch and has_one:
        raise SettingsError(f"{label} has both perform and perform_one: keep one, for a batch or for {_ONE}")
    if not has_batch and not has_one:  # an application that only pushes needs none
        _require_no_misspelt(label, worker, base)
        return Shape(), Types()
    name, count = ("perform_one", 2) if has_one else ("perform", 1)
    _require_self(f"{label}: {name}", worker, name)
    method = _bound(worker, name)
    may_be = _ONE if has_one else f"{_BATCH}; perform_one takes {_ONE}"
    parameters = _parameters(f"{label}: {name}", method, f"it takes {may_be}")
    if not _required(parameters) <= count <= _most(parameters):
        raise SettingsError(f"{label}: {name} takes {_told(parameters)}: it may be {may_be}")
    return _read(f"{label}: {name}", method, parameters, is_one=has_one, members=vars(worker))


def gives_error(label: str, worker: type, base: type) -> bool:
    """
    True if a worker's own retry_in takes the error besides the number of retries.

    Raises:
        SettingsError: it can be called with neither, and says what it takes.
    """
    if getattr(worker, "retry_in", None) is getattr(base, "retry_in", None):
        return False
    may_be = "it takes (retry_count), or (retry_count, error)"
    parameters = _parameters(label, _bound(worker, "retry_in"), may_be)
    required = _required(parameters)
    if required > 2 or not _most(parameters):  # noqa: PLR2004 (as may_be has)
        raise SettingsError(f"{label} takes {_told(parameters)}: {may_be}")
    # An optional one may be anything, and is left alone unless it is called so.
    second = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL][1:2]
    return required == 2 or second == ["error"]  # noqa: PLR2004 (as above)


def require_makeable(label: str, worker: type) -> None:
    """Raises SettingsError for a class that needs arguments: a node makes an instance of it without any."""
    try:
        inspect.signature(worker).bind()
    except TypeError as error:
        raise SettingsError(
            f"{label}: __init__ can't be called without arguments ({error}), as a node does: give them defaults"
        ) from error
    except (ValueError, NameError):  # of what is written in C; of annotations, since 3.14
        return


def _require_self(label: str, worker: type, name: str) -> None:
    """Raises SettingsError for a method that has forgotten its self, which would take the place of what it is given."""
    function = inspect.getattr_static(worker, name)
    parameters = list(inspect.signature(function).parameters) if inspect.isfunction(function) else ["self"]
    first = parameters[0] if parameters else ""
    if not parameters or (first.startswith("payload") and name == "perform") or parameters == ["id", "payloads"]:
        raise SettingsError(
            f"{label} takes ({', '.join(parameters)}), and has no self: write def {name}(self, {_GIVEN[name]}), or "
            "make it a staticmethod"
        )


def _require_no_misspelt(label: str, worker: type, base: type) -> None:
    """Raises SettingsError for a class without perform that has something of nearly that name."""
    for name in sorted({*dir(worker)} - {*dir(base)}):
        if close := difflib.get_close_matches(name, _GIVEN, n=1, cutoff=0.8):
            raise SettingsError(f"{label} has no perform, but {name}: did you mean `{close[0]}`?")


def _bound(worker: type, name: str) -> Any:
    """A method as an instance has it, without the making of one."""
    attribute = inspect.getattr_static(worker, name)
    return attribute.__get__(object(), worker) if hasattr(attribute, "__get__") else attribute


def _read(
    label: str,
    call: Callable[..., Any],
    parameters: list[Parameter],
    *,
    is_one: bool,
    members: Mapping[str, Any] | None = None,
) -> tuple[Shape, Types]:
    kind = _kind(label, call)
    named = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]

    def annotation(index: int) -> Any:
        if index >= len(named):
            return Any
        return resolved(f"{label}: {named[index].name}", named[index].annotation, call, dict(members or {}))

    if is_one:
        payload = of_list(f"{label}: {named[1].name}" if len(named) > 1 else label, annotation(1))
        types = Types(annotation(0), payload)
    else:
        types = of_batch(f"{label}: {named[0].name}" if named else label, annotation(0))
    return Shape(is_async=kind, is_one=is_one, is_hidden=kind and not inspect.iscoroutinefunction(call)), types


def _kind(label: str, call: Callable[..., Any]) -> bool:
    """Returns whether it is a coroutine function, be it under decorators. A call of a generator would run nothing."""
    for function in (call, plain_function(call) if isinstance(call, partial) or not inspect.isroutine(call) else call):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            kind = "an async generator" if inspect.isasyncgenfunction(function) else "a generator"
            raise SettingsError(f"{label} is {kind}, and would never run: make it a plain function, or `async def`")
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(plain_function(call))


def _parameters(label: str, call: Callable[..., Any], may_be: str) -> list[Parameter]:
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError, NameError) as error:  # of what is written in C; of annotations, since 3.14
        raise SettingsError(f"{label} has a signature that can't be read ({error}): {may_be}") from error
    for parameter in parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty:
            raise SettingsError(f"{label} needs the keyword {parameter.name}, which nobody gives it: {may_be}")
    return parameters


def _required(parameters: list[Parameter]) -> int:
    return sum(parameter.kind in _POSITIONAL and parameter.default is Parameter.empty for parameter in parameters)


def _most(parameters: list[Parameter]) -> float:
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return float("inf")
    return sum(parameter.kind in _POSITIONAL for parameter in parameters)


def _told(parameters: list[Parameter]) -> str:
    return f"({', '.join(parameter.name for parameter in parameters)})"


def _one(perform: Callable[..., Any]) -> Call:
    def call(payloads_by_id: dict[str, list[Any]]) -> Any:
        ((id, payloads),) = payloads_by_id.items()
        return perform(id, payloads)

    return call


def _with_id(perform: Callable[..., Any], load_id: Callable[[str], Any]) -> Callable[..., Any]:
    def call(id: str, payloads: list[Any]) -> Any:
        return perform(load_id(id), payloads)

    return call


def _with_ids(perform: Callable[..., Any], load_id: Callable[[str], Any]) -> Call:
    return lambda payloads_by_id: perform({load_id(id): payloads for id, payloads in payloads_by_id.items()})


def _awaited(perform: Callable[..., Any]) -> Callable[..., Any]:
    """A call of what hides a coroutine function, or has run it to its end by itself."""

    async def call(*arguments: Any) -> Any:
        result = perform(*arguments)
        return await result if inspect.isawaitable(result) else result

    return call
