"""Models: payload types of pydantic, which is loaded only for those who use it; and where in a payload an error is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec

from lowkiq.codec import ENCODING, NESTED, require_json
from lowkiq.errors import short
from lowkiq.usual import encodable


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


_encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=encodable).encode


def is_model(annotation: Any) -> bool:
    """Returns whether a type is a model or dataclass of pydantic, or a list, union and so on of such."""
    return hasattr(annotation, "__pydantic_core_schema__") or any(map(is_model, get_args(annotation)))


class Models:
    """Converts payloads of one such type. Raises what pydantic raises for a type that it can't handle."""

    runs_user_code = True

    def __init__(self, annotation: Any) -> None:
        pydantic = importlib.import_module("pydantic")
        self._adapter = pydantic.TypeAdapter(annotation)
        self._refused: type[Exception] = pydantic.ValidationError
        self._plain_part: Any = importlib.import_module("pydantic_core").to_jsonable_python

    def plain(self, payload: Any, /) -> Any:
        """Value that its JSON is loaded to."""
        # By its serializer, which has taken a fallback ever since.
        return self._adapter.serializer.to_python(
            payload, mode="json", by_alias=True, round_trip=True, warnings=False, fallback=encodable
        )

    def decode(self, data: bytes) -> Any:
        """JSON → payload. Raises ValueError with the path of the wrong field, as msgspec writes it."""
        try:
            return self._adapter.validate_json(data)
        except self._refused as error:
            raise _explained(error) from None

    def encode(self, payload: Any) -> bytes:
        """Payload → JSON, in an order that equal payloads share."""
        return _encode(self.plain(payload))

    def convert(self, plain: Any, /) -> Any:
        """A payload of what a `load_payload` of the user's makes."""
        return self.decode(_encode(plain))

    def is_same(self, one: Any, other: Any, /) -> bool:
        """Returns whether two payloads are equal."""
        return bool(one == other)

    def refused(self, payload: Any, error: Exception, /) -> Exception:
        """The refusal of a payload that could not be encoded, with the place of what is to blame."""
        return refused(payload, lambda part: _encode(self._plain_part(part, fallback=encodable)), error)


def _explained(error: Any) -> ValueError:
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f", and {len(others)} more" if others else ""
    return ValueError(f"{first['msg']} - at `{path}`{more}")
