"""Annotations of a worker's parameters: `dict[str, list[OrderChange]]`, or `int` and `list[OrderChange]`."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin

from lowkiq.errors import SettingsError

#: What perform is given satisfies these.
_DICTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS: Final = (
    list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection,
    collections.abc.Iterable,
)  # fmt: skip


class Types(NamedTuple):
    """The types of a worker's ids and payloads; Any where nothing is known."""

    id: Any = Any
    payload: Any = Any


def of_batch(label: str, annotation: Any) -> Types:
    """The types in the annotation of a batch. Raises SettingsError for one that can't be that of a batch."""
    annotation = bare(annotation)
    if annotation is Any or annotation is object:
        return Types()
    arguments = _arguments(annotation, _DICTS, 2)
    if arguments is None:
        raise SettingsError(
            f"{label} is annotated {shown(annotation)}, but gets a dict from ids to lists of payloads: "
            "annotate it dict[str, list[…]], or take `(id, payloads)`, an id at a time"
        )
    return Types(bare(arguments[0]), of_list(label, arguments[1]))


def of_list(label: str, annotation: Any) -> Any:
    """The type of payloads in the annotation of a list of them. Raises SettingsError for any other."""
    annotation = bare(annotation)
    if annotation is Any or annotation is object:
        return Any
    arguments = _arguments(annotation, _LISTS, 1)
    if arguments is None:
        raise SettingsError(
            f"{label} is annotated {shown(annotation)}, but payloads come as a list: annotate them list[…]"
        )
    return bare(arguments[0])


def of_base(worker: type, generic: type) -> Any:
    """The payload type of a class that inherits from `Worker[T]`, be it a type variable; Any for a bare Worker."""
    for base in getattr(worker, "__orig_bases__", worker.__bases__):
        origin, arguments = get_origin(base) or base, get_args(base)
        if origin is Generic or not isinstance(origin, type) or not issubclass(origin, generic):
            continue
        if origin is generic:
            return arguments[0] if arguments else Any
        found = of_base(origin, generic)
        parameters = getattr(origin, "__parameters__", ())
        names = dict(zip(parameters, arguments or (Any,) * len(parameters), strict=True))
        if inner := getattr(found, "__parameters__", ()):
            return found[tuple(names.get(name, Any) for name in inner)]
        return names.get(found, found) if isinstance(found, TypeVar) else found
    return Any


def resolved(label: str, annotation: Any, call: Callable[..., Any], members: dict[str, Any]) -> Any:
    """An annotation with its names looked up. Raises SettingsError for a name that is not there at runtime."""
    if annotation is inspect.Parameter.empty:
        return Any
    function = plain_function(call)
    closure = zip(
        getattr(getattr(function, "__code__", None), "co_freevars", ()),
        getattr(function, "__closure__", None) or (), strict=True,
    )  # fmt: skip
    names = members | {name: cell.cell_contents for name, cell in closure if _is_filled(cell)}

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        hints = typing.get_type_hints(holder, getattr(function, "__globals__", {}), names, include_extras=True)
    except Exception as error:
        raise SettingsError(
            f"{label} is annotated {annotation}, which can't be looked up: {error}. Lowkiq needs the type when the "
            "worker is registered: import it outside TYPE_CHECKING, define it above, and at the module's level"
        ) from error
    return hints["it"]


def plain_function(call: Any) -> Any:
    """The function under methods, partials, decorators and objects that can be called."""
    while True:
        if isinstance(call, functools.partial):
            call = call.func
        elif inspect.ismethod(call):
            call = call.__func__
        elif hasattr(call, "__wrapped__"):
            call = call.__wrapped__
        elif not inspect.isroutine(call) and inspect.ismethod(getattr(call, "__call__", None)):  # noqa: B004 (an object)
            call = call.__call__
        else:
            return call


def bare(annotation: Any) -> Any:
    """A type without what says nothing of it: an alias by `type`, a type variable."""
    while hasattr(annotation, "__value__"):
        annotation = annotation.__value__
    if isinstance(annotation, TypeVar) or annotation is inspect.Parameter.empty:
        return Any
    return annotation


def shown(annotation: Any) -> str:
    """A type as an error names it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _arguments(annotation: Any, kinds: tuple[type, ...], count: int) -> tuple[Any, ...] | None:
    """The arguments of one of these generic types, Any where it has none; None for any other type."""
    while get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    if (get_origin(annotation) or annotation) not in kinds:
        return None
    return get_args(annotation) or (Any,) * count


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (raises ValueError where it is empty)
    except ValueError:
        return False
    return True
