"""Places: what in a payload of a type is to blame for its refusal, told as `payload['a'][0]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lowkiq.codec import ENCODING, NESTED, require_json
from lowkiq.errors import short


def refused(payload: Any, encode: Callable[[Any], object], error: Exception, path: str = "payload") -> ValueError:
    """The refusal of what can't be encoded: it names the first part that can't be either, and has none itself."""
    for step, part in _parts(payload):
        try:
            encode(part)
        except RecursionError:
            return ValueError(NESTED)
        except ENCODING as found:
            return refused(part, encode, found, path + step)
    if isinstance(payload, str | int | float | dict):
        try:
            require_json(payload, path)
        except ValueError as found:
            return found
    return ValueError(f"{path}: {error}")


def changed(payload: Any, loaded: Any) -> str:
    """The first part of a payload that would come back as something else, in words behind others; "" for itself."""
    path, part = _first_changed(payload, loaded, "payload")
    return f": {path} is {short(part)}" if path != "payload" else ""


def is_rounded(payload: Any, loaded: Any) -> bool:
    """Returns whether an integer of a payload has come back as another number, since its place holds floats."""
    if type(loaded) is float:
        return type(payload) is int and payload != loaded
    others = dict(_parts(loaded))
    return any(step in others and is_rounded(part, others[step]) for step, part in _parts(payload))


def _first_changed(payload: Any, loaded: Any, path: str) -> tuple[str, Any]:
    others = dict(_parts(loaded))
    for step, part in _parts(payload):
        if step in others and others[step] != part:
            return _first_changed(part, others[step], path + step)
    return path, payload


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What is directly in a container or an object, each with the step to it."""
    kind = type(value)
    if issubclass(kind, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif issubclass(kind, list | tuple | set | frozenset):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    else:
        of_others = ("__struct_fields__", "__dataclass_fields__", "__pydantic_fields__")
        names = [name for place in of_others for name in getattr(kind, place, ())]
        for name in names or [field.name for field in getattr(kind, "__attrs_attrs__", ())]:
            yield f"[{name!r}]", getattr(value, name, None)
