"""Codec: a worker's payloads and ids as perform has them, and as Redis, which knows ids as texts only, has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from lowkiq import codec
from lowkiq.errors import SettingsError, short
from lowkiq.types.annotations import Types, shown
from lowkiq.types.payloads import Dump, Load, has_user_code, of_any_type, of_type, parts
from lowkiq.usual import usual

_KINDS: Final = (
    types.StrType, types.IntType, types.UUIDType, types.EnumType, types.LiteralType, types.DateType,
    types.DateTimeType, types.DecimalType,
)  # fmt: skip


class IdType:
    """
    A type of ids. Each of its values has one text, and only that is accepted: if "17" and "017" were both 17, two jobs
    would be one id to perform, while Redis has them run beside each other.
    """

    def __init__(self, type: Any) -> None:
        self._type = type
        #: The most common one has a way of its own, a fifth of the usual one's cost: each job goes it twice.
        self._is_int = getattr(type, "__supertype__", type) is int

    def load(self, text: str) -> Any:
        """The id of a text. Raises ValueError for a text that is none."""
        if self._is_int:
            try:
                number = int(text)
            except ValueError:
                pass  # in msgspec's words
            else:
                if str(number) == text:
                    return number
        try:
            value = msgspec.convert(text, self._type, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"id {short(text)} is no {shown(self._type)}: {error}") from error
        written = _write(value)
        if written != text:
            raise ValueError(f"id {short(text)} is no {shown(self._type)} as it is written: that is {short(written)}")
        return value

    def dump(self, id: Any) -> str:
        """The text of an id, be that a value of the type or its text. Raises ValueError for what is none."""
        if type(id) is not int and type(id) is not str:
            id = usual(id)
        if type(id) is str:
            text = id
        elif self._is_int and type(id) is int:
            return str(id)
        else:
            try:
                text = _write(id)
            except (TypeError, msgspec.MsgspecError):
                raise ValueError(f"id {short(id)} is no {shown(self._type)}, but a {type(id).__name__}") from None
        self.load(text)
        return text


def id_type(label: str, annotation: Any) -> IdType | None:
    """The type that ids are annotated with, None if they stay texts. Raises SettingsError for one that is no id's."""
    if annotation is Any:
        return None
    try:
        node = types.type_info(annotation)
    except Exception as error:
        raise SettingsError(f"{label}: ids are annotated {shown(annotation)}, which can't be used: {error}") from error
    if node == types.StrType():
        return None
    parts = node.types if isinstance(node, types.UnionType) else (node,)
    if not all(isinstance(part, _KINDS) for part in parts):
        raise SettingsError(
            f"{label}: ids are annotated {shown(annotation)}; they may be str, int, UUID, an Enum, a Literal, a date "
            "or datetime, a Decimal, or a NewType of one of these"
        )
    return IdType(annotation)


def _write(id: Any) -> str:
    (text,) = msgspec.to_builtins({id: None}, str_keys=True)
    return str(text)


@dataclass(frozen=True)
class Codec:
    """Made when a worker is registered, from its annotations and the application's settings."""

    #: Bytes → payload. Raises for what does not fit the type, with the path of the wrong field.
    load: Load = codec.load_payload
    #: Payload → bytes. Raises ValueError for what would not come back as it is.
    dump: Dump = codec.dump_payload
    #: To load a payload, or an id, runs code of the user's, which may kill the node.
    runs_user_code: bool = False
    #: Text → id, and back; both raise ValueError for what is no id. None where ids stay texts.
    load_id: Callable[[str], Any] | None = None
    dump_id: Callable[[Any], str] | None = None

    @property
    def check_id(self) -> Callable[[str], object] | None:
        """Raises ValueError for an id that can't be converted."""
        return self.load_id


#: Of workers without annotations, in an application without hooks of its own for payloads.
PLAIN: Final = Codec()


def make_codec(label: str, annotated: Types, load: Load, dump: Dump) -> Codec:
    """
    The codec of a worker, with the settings' own load_payload and dump_payload.

    Raises:
        SettingsError: a type can't be converted to and from what Redis holds.
    """
    is_typed = annotated.payload is not Any and annotated.payload is not object
    payloads = of_type(label, annotated.payload, load, dump) if is_typed else of_any_type(load, dump)
    ids = id_type(label, annotated.id)
    if ids is None:
        return Codec(*payloads)
    runs_user_code = payloads.runs_user_code or any(map(has_user_code, parts(annotated.id)))
    return Codec(payloads.load, payloads.dump, runs_user_code, ids.load, ids.dump)
