"""Payloads of a type: loaded into it, and refused by a push that does not fit it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect as types

from lowkiq import codec
from lowkiq.errors import SettingsError, short
from lowkiq.types.annotations import shown
from lowkiq.types.models import Models, is_model

Load = Callable[[bytes], Any]
Dump = Callable[[Any], bytes | str]

#: Sorted: an object and a dict with the same fields are one payload.
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_plain: Final[Callable[[Any], Any]] = partial(msgspec.to_builtins, order="sorted", str_keys=True)
_PLAIN_FACTORIES: Final = (list, dict, set, frozenset, tuple, bytearray, msgspec.NODEFAULT)


class Payloads(NamedTuple):
    """The way of a worker's payloads to bytes and back."""

    load: Load = codec.load_payload
    dump: Dump = codec.dump_payload
    #: To load one runs code of the user's, which may kill the node.
    runs_user_code: bool = False


def of_any_type(load: Load, dump: Dump) -> Payloads:
    """Payloads that stay what the settings' load_payload makes of them."""
    return Payloads(load, dump, load is not codec.load_payload)


def of_type(label: str, annotation: Any, load: Load, dump: Dump) -> Payloads:
    """
    Payloads of one type, behind the settings' own load_payload and dump_payload.

    Raises:
        SettingsError: the type can't be made from JSON.
    """
    is_plain_json = load is codec.load_payload and dump is codec.dump_payload
    plain: Callable[[Any], Any] = _plain
    is_users = load is not codec.load_payload
    try:
        if is_model(annotation):
            models = Models(annotation)
            typed = models.decode if is_plain_json else models.converting(load)
            plain, is_users = models.plain, True
        else:
            is_users = runs_user_code(annotation) or is_users
            decoder = msgspec.json.Decoder(annotation)
            typed = decoder.decode if is_plain_json else lambda data: _convert(load(data), annotation)
    except Exception as error:
        raise SettingsError(
            f"{label}: payloads are annotated {shown(annotation)}, which they can't be turned into: {error}"
        ) from error
    encode = _encode if is_plain_json and plain is _plain else lambda payload: _bytes(dump(plain(payload)))
    return Payloads(typed, _Dumper(encode, typed, plain), is_users)


class _Dumper:
    """
    Dumps payloads of one type. What does not fit the type, or would come back as something else, is refused; what
    comes back equal is dumped as it came back, so that equal payloads give equal bytes.
    """

    def __init__(self, encode: Callable[[Any], bytes], load: Load, plain: Callable[[Any], Any]) -> None:
        self._encode = encode
        self._load = load
        self._plain = plain

    def __call__(self, payload: Any) -> bytes:
        data = self._encode(payload)
        loaded = self._load(data)
        if loaded == payload:
            return self._encode(loaded)
        plain = self._plain(payload)
        if self._plain is _plain and plain == _plain(loaded):  # of a class that is only equal to itself
            return self._encode(loaded)
        codec.dump_payload(plain)  # names the place of what JSON can't hold
        if plain == payload:  # JSON itself, as perform_async may be given it
            return data
        raise ValueError(f"it would come back as {short(loaded)}")


def _convert(payload: Any, annotation: Any) -> Any:
    return msgspec.convert(payload, annotation, str_keys=True)


def _bytes(dumped: bytes | str) -> bytes:
    return dumped.encode() if isinstance(dumped, str) else dumped


def runs_user_code(annotation: Any) -> bool:
    """Returns whether to make one of this type runs code of the user's. TypeError for a class msgspec can't make."""
    found = False
    for node in _parts(types.type_info(annotation), set()):
        if isinstance(node, types.CustomType) and node.cls is not object:
            fit = "make what holds it a model too" if is_model(node.cls) else "make it a msgspec.Struct or a dataclass"
            raise TypeError(f"{node.cls.__qualname__} is a class of its own; {fit}")
        found = found or _has_user_code(node)
    return found


def _parts(node: Any, seen: set[int]) -> Iterator[Any]:
    """A type with all that is in it."""
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for name in node.__struct_fields__:
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, types.Type | types.Field):
                yield from _parts(part, seen)


def _has_user_code(node: Any) -> bool:
    if isinstance(node, types.Field):
        return node.default_factory not in _PLAIN_FACTORIES
    if isinstance(node, types.EnumType):
        return any("_missing_" in vars(cls) for cls in node.cls.__mro__ if cls is not enum.Enum)
    return any(hasattr(getattr(node, "cls", None), name) for name in ("__post_init__", "__attrs_attrs__"))
