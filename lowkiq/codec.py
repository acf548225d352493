"""Payloads as bytes. The default is canonical JSON: equal objects give equal bytes, or merging would fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from lowkiq import usual
from lowkiq.errors import class_name

#: Sorted keys: {"a": 1, "b": 2} and {"b": 2, "a": 1} are one payload.
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=usual.encodable).encode

NESTED: Final = "payload is nested too deeply, or contains itself"
_EXACT: Final = frozenset({str, int, float, bool, type(None), list, tuple, dict})
#: Integers of fewer bits are printed, whatever CPython's limit is.
_MANY_BITS: Final = 2_000
#: What an encoder raises.
ENCODING: Final = (TypeError, ValueError, OverflowError, msgspec.MsgspecError)

#: Bytes of a payload that is named by itself.
LONGEST_NAME: Final = 1_000

#: Bytes → payload, the inverse of `dump_payload`. The decoder's own method: it is called for every payload.
load_payload: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode


def dump_payload(payload: Any) -> bytes:
    """
    Canonical JSON. What JSON can't hold is refused rather than changed on the way (msgspec alone would turn NaN into
    null, a set into a list, a date into a string). A tuple becomes a list, as in the standard library, and an instance
    of a subclass of str, int or float, or a scalar of NumPy's, what it is.

    Raises:
        ValueError: names the place and the type of what can't be held.
    """
    try:
        data = _encode(payload)
        # What comes back equal was JSON: much faster than checking each value.
        if load_payload(data) == payload:
            return data
        require_json(payload)
    except RecursionError:
        raise ValueError(NESTED) from None
    except ENCODING as error:
        try:
            require_json(payload)
        except RecursionError:
            raise ValueError(NESTED) from None
        except ValueError as found:
            raise found from None
        raise ValueError(str(error)) from error
    return data


def name_of(payload: bytes) -> bytes:
    """What names a payload in few enough bytes, as scripts have it (checkpoint.lua)."""
    return payload if len(payload) <= LONGEST_NAME else b"%d:%b%b" % (len(payload), payload[:500], payload[-500:])


def join_words(words: Iterable[bytes]) -> bytes:
    """Words as one text: each behind the number of its bytes and a colon."""
    return b"".join(b"%d:%b" % (len(word), word) for word in words)


def split_words(text: bytes) -> list[bytes]:
    """The words of such a text. Raises ValueError for what is none."""
    words: list[bytes] = []
    at = 0
    while at < len(text):
        colon = text.index(b":", at)
        length = text[at:colon]
        at = colon + 1 + int(length)
        if not length.isdigit() or at > len(text):
            raise ValueError("no words")
        words.append(text[colon + 1 : at])
    return words


def identity(value: str) -> str:
    """Stores errors as they are, unless `dump_error` says otherwise."""
    return value


#: Characters of an error that are kept: a page of backtrace, but no request body that someone put into a message.
MAX_ERROR_CHARS = 16_384


def format_error(error: BaseException) -> str:
    """The part of an error that is kept: its type and message."""
    return f"{class_name(error)}: {error}"


def encodable(text: str) -> str:
    """Escapes what can't be UTF-8, such as a lone surrogate, so that it keeps no job from being settled or logged."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_text(error: BaseException, format: Callable[[BaseException], str] = format_error) -> str:
    """The text that `format` makes of an error, as far as it can be kept. It never fails."""
    try:
        return encodable(str(format(error))[:MAX_ERROR_CHARS])
    except BaseException as broken:  # noqa: BLE001 (format, or the error's own __str__, is the user's)
        return f"{class_name(error)} (which could not be formatted: {class_name(broken)})"


def require_json(value: Any, path: str = "payload") -> None:
    """Raises ValueError for the first of what JSON can't hold, with its place."""
    kind = type(value)
    if kind not in _EXACT:
        value = usual.usual(value)
        if value.__class__ is not type(value):  # a proxy, such as Django's SimpleLazyObject
            raise _unheld(path, kind)
    match value:
        case None | bool():
            pass
        case str() | int() | float():
            _require_writable(value, path)
        case dict():
            for key, item in value.items():
                if not issubclass(type(key), str):
                    raise ValueError(f"{path} has the key {key!r:.60} ({type(key).__name__}); JSON's keys are strings")
                _require_writable(key, f"a key of {path}")
                require_json(item, f"{path}[{key!r}]")
        case list() | tuple():
            for index, item in enumerate(value):
                require_json(item, f"{path}[{index}]")
        case _:
            raise _unheld(path, kind)


def _require_writable(value: str | float, path: str) -> None:
    if isinstance(value, str):
        if value.isascii():
            return
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{path} is {value!r:.60}, which can't be written in UTF-8: escape it first") from None
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}, which JSON can't hold")
    elif value.bit_length() > _MANY_BITS:
        try:
            str(value)
        except ValueError:  # CPython's limit of digits
            raise ValueError(f"{path} is an integer of more than 4,300 digits: make it a string") from None


def _unheld(path: str, kind: type) -> ValueError:
    return ValueError(f"{path} is a {kind.__name__}, which JSON can't hold; convert it or set dump_payload")
