"""Payloads of a type: loaded into it, and refused by a push that does not fit it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import inspect as types

from lowkiq import codec
from lowkiq.errors import SettingsError, short
from lowkiq.types.annotations import shown
from lowkiq.types.models import Models, changed, is_model, is_rounded, refused
from lowkiq.usual import encodable

Load = Callable[[bytes], Any]
Dump = Callable[[Any], bytes | str]

#: Sorted: an object and a dict with the same fields are one payload.
_encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=encodable).encode
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
    Payloads of one type, behind the settings' own load_payload and dump_payload. A class of the user's own, which
    nobody else can make, is left to these.

    Raises:
        SettingsError: the type can't be made from JSON.
    """
    is_json = load is codec.load_payload and dump is codec.dump_payload
    try:
        form: Form = Models(annotation) if is_model(annotation) else Objects(annotation)
    except Exception as error:
        if isinstance(error, OwnClass) and load is not codec.load_payload and dump is not codec.dump_payload:
            return of_any_type(load, dump)
        raise SettingsError(
            f"{label}: payloads are annotated {shown(annotation)}, which they can't be turned into: {error}"
        ) from error
    if is_json:
        dump_json = _Dumper(shown(annotation), form, form.encode, form.decode, is_json=True)
        return Payloads(form.decode, dump_json, form.runs_user_code)

    def load_typed(data: bytes) -> Any:
        return form.convert(load(data))

    def dump_typed(payload: Any) -> bytes:
        dumped = dump(form.plain(payload))
        return dumped.encode() if isinstance(dumped, str) else dumped

    is_users = form.runs_user_code or load is not codec.load_payload
    return Payloads(load_typed, _Dumper(shown(annotation), form, dump_typed, load_typed, is_json=False), is_users)


class Form(Protocol):
    """A type of payloads, and its way to and from JSON, and what JSON is loaded to."""

    @property
    def runs_user_code(self) -> bool: ...
    @property
    def decode(self) -> Load: ...
    @property
    def encode(self) -> Callable[[Any], bytes]: ...
    def convert(self, plain: Any, /) -> Any: ...
    def plain(self, payload: Any, /) -> Any: ...
    def is_same(self, one: Any, other: Any, /) -> bool: ...
    def refused(self, payload: Any, error: Exception, /) -> Exception: ...


class OwnClass(TypeError):
    """A type holds a class that can't be made from JSON."""


class Objects:
    """Converter of the types that msgspec knows."""

    def __init__(self, annotation: Any) -> None:
        nodes = list(parts(annotation))
        for cls in (node.cls for node in nodes if isinstance(node, types.CustomType) and node.cls is not object):
            fit = "make what holds it a model too" if is_model(cls) else "make it a msgspec.Struct or a dataclass"
            raise OwnClass(f"{cls.__qualname__} is a class of its own; {fit}")
        has_keys = any(isinstance(node, types.DictType) and not _is_text(node.key_type) for node in nodes)
        if has_keys and any(isinstance(node, types.SetType | types.FrozenSetType) for node in nodes):
            raise TypeError("a set can't be put in order beside a dict with keys that are not str: make it a list")
        self._type = annotation
        self._order: Literal["sorted"] | None = None if has_keys else "sorted"
        self._is_by_value = all(map(_has_value, nodes))
        self.runs_user_code = any(map(has_user_code, nodes))
        self.decode: Load = msgspec.json.Decoder(annotation).decode
        self.encode: Callable[[Any], bytes] = (lambda payload: _encode(self.plain(payload))) if has_keys else _encode

    def convert(self, plain: Any, /) -> Any:
        """A payload of what JSON is loaded to."""
        return msgspec.convert(plain, self._type, str_keys=True)

    def plain(self, payload: Any, /) -> Any:
        """Value that its JSON is loaded to."""
        return msgspec.to_builtins(payload, order=self._order, str_keys=True, enc_hook=encodable)

    def is_same(self, one: Any, other: Any, /) -> bool:
        """Returns whether two payloads are equal, by what is in them where their class knows no equality."""
        return bool(one == other) or (not self._is_by_value and self.plain(one) == self.plain(other))

    def refused(self, payload: Any, error: Exception, /) -> Exception:
        """The refusal of a payload that could not be encoded, with the place of what is to blame."""
        return refused(payload, self.encode, error)


class _Dumper:
    """
    Dumps payloads of one type. What does not fit the type, or would come back as something else, is refused; what
    comes back equal is dumped as it came back, so that equal payloads give equal bytes.
    """

    def __init__(self, name: str, form: Form, encode: Callable[[Any], bytes], load: Load, *, is_json: bool) -> None:
        self._name = name
        self._form = form
        #: What the bytes can hold is known. The user's own may hold more, such as NaN, and then come back the same.
        self._is_json = is_json
        self._encode = encode
        self._load = load

    def __call__(self, payload: Any) -> bytes:
        try:
            data = self._encode(payload)
        except codec.ENCODING as error:
            raise self._form.refused(payload, error) from None
        try:
            loaded = self._load(data)
        except msgspec.ValidationError as error:
            whole = "" if " - at `" in str(error) else f": it must be {self._name}, not {short(payload)}"
            raise ValueError(f"{error}{whole}") from None
        again = self._encode(loaded)
        if self._form.is_same(loaded, payload) or (again == data and not self._is_json):
            return again
        plain = self._form.plain(payload)
        codec.dump_payload(plain)  # names the place of what JSON can't hold
        if plain == payload and not is_rounded(payload, loaded):  # JSON itself, as perform_async may be given it
            return data
        raise ValueError(f"it would come back as {short(loaded)}{changed(payload, loaded)}")


def parts(annotation: Any) -> Iterator[Any]:
    """All types that a type is made of, and its fields, as msgspec describes them. TypeError for none of its types."""
    return _parts(types.type_info(annotation), set())


def _is_text(key: types.Type) -> bool:
    return isinstance(key, types.StrType | types.AnyType)


def _has_value(node: Any) -> bool:
    """Returns whether its instances are equal if what is in them is."""
    if isinstance(node, types.StructType):
        return bool(node.cls.__struct_config__.eq)
    return not isinstance(node, types.DataclassType) or "__eq__" in {
        name for cls in node.cls.__mro__[:-1] for name in vars(cls)
    }


def _parts(node: Any, seen: set[int]) -> Iterator[Any]:
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for name in node.__struct_fields__:
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, types.Type | types.Field):
                yield from _parts(part, seen)


def has_user_code(node: Any) -> bool:
    """Returns whether to make one of it, or of a class with such a field, runs code of the user's."""
    if isinstance(node, types.Field):
        return node.default_factory not in _PLAIN_FACTORIES
    if isinstance(node, types.EnumType):
        return any("_missing_" in vars(cls) for cls in node.cls.__mro__ if cls is not enum.Enum)
    return any(hasattr(getattr(node, "cls", None), name) for name in ("__post_init__", "__attrs_attrs__"))
