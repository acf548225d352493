"""
Usual values: what other libraries make of Python's own types (Django's SafeString, scalars of NumPy, datetimes of
pendulum, pandas and freezegun, subclasses of anybody's) as what they are. Only what could not be encoded comes here.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final


def _datetime(base: Any, value: Any) -> Any:
    zone = None if value.utcoffset() is None else datetime.timezone(value.utcoffset())
    return base(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, zone,
        fold=value.fold,
    )  # fmt: skip


def _timedelta(base: Any, value: Any) -> Any:
    """By the base's own members: pendulum counts months apart."""
    return base(base.days.__get__(value), base.seconds.__get__(value), base.microseconds.__get__(value))


#: Type → what makes one of an instance of a subclass. The types are told by these, as freezegun changes all names of
#: them. A datetime is a date too, so it comes first.
_MAKERS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    str: lambda base, value: base.__str__(value),
    int: lambda base, value: base.__int__(value),
    float: lambda base, value: base.__float__(value),
    datetime.datetime: _datetime,
    datetime.date: lambda base, value: base(value.year, value.month, value.day),
    datetime.time: lambda base, value: base(
        value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold
    ),
    datetime.timedelta: _timedelta,
    decimal.Decimal: lambda base, value: base(value),
    bytes: lambda base, value: base.__getitem__(value, slice(None)),
}
_SCALARS: Final = (bool, int, float, str)


def usual(value: Any) -> Any:
    """An instance of a subclass, or a scalar of NumPy's kind, as the plain value that it is; all else as it came."""
    kind = type(value)
    if kind in _MAKERS or kind is bool or value is None:
        return value
    for base, make in _MAKERS.items():
        if issubclass(kind, base):
            return value if is_nan(value) and base is not float else make(base, value)
    return _scalar(kind, value)


def is_nan(value: Any) -> bool:
    """True for a NaN, and for what stands for no time, as pandas' NaT: these alone differ from themselves."""
    return bool(value != value)  # noqa: PLR0124 (see above)


def encodable(value: Any) -> Any:
    """The same for a msgspec encoder, as its hook. Raises TypeError for what stays what it was."""
    found = usual(value)
    if found is value:
        raise TypeError(f"to encode a {type(value).__name__} is unsupported: convert it, or set dump_payload")
    return found


def _scalar(kind: type, value: Any) -> Any:
    """The value of what holds one and says so by `item()`, as numpy.int64; an array of one is none, nor is a time."""
    is_one = callable(getattr(kind, "item", None)) and not hasattr(kind, "__len__") and not hasattr(kind, "__iter__")
    if not is_one or getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        return value
    try:
        item = value.item()
        is_same = item == value or is_nan(item)  # which is refused as such
    except Exception:  # noqa: BLE001 (an item() of another meaning)
        return value
    return item if type(item) in _SCALARS and is_same else value
