"""Types of ids: each value has one text, and any other text is refused."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
import pytest

from lowkiq.types.codec import id_type


class Colour(enum.Enum):
    RED = "red"
    ONE = "1"


class Shade(enum.StrEnum):
    DARK = "dark"


class Size(int, enum.Enum):
    BIG = 3


OrderId = NewType("OrderId", int)
Name = NewType("Name", str)
SOME = UUID("12345678-9abc-def0-1234-56789abcdef0")


@pytest.mark.parametrize(
    ("type", "id", "text"),
    [
        (int, 17, "17"),
        (int, -3, "-3"),
        (int, 10**30, str(10**30)),
        (OrderId, OrderId(17), "17"),
        (UUID, SOME, "12345678-9abc-def0-1234-56789abcdef0"),
        (Colour, Colour.RED, "red"),
        (Shade, Shade.DARK, "dark"),
        (Size, Size.BIG, "3"),
        (Literal["a", "b"], "b", "b"),
        (datetime.date, datetime.date(2026, 3, 1), "2026-03-01"),
        (decimal.Decimal, decimal.Decimal("1.50"), "1.50"),
        (int | str, "x", "x"),
        (Annotated[str, msgspec.Meta(max_length=3)], "abc", "abc"),
    ],
)
def test_an_id_and_its_text(type: Any, id: Any, text: str) -> None:
    ids = id_type("worker q", type)
    assert ids
    assert ids.dump(id) == ids.dump(text) == text
    assert ids.load(text) == id


@pytest.mark.parametrize("type", [str, Any, Name])
def test_a_text_stays_a_text(type: Any) -> None:
    assert id_type("worker q", type) is None


@pytest.mark.parametrize(
    ("type", "text", "says"),
    [
        (int, "x", "id 'x' is no int: Expected `int`, got `str`"),
        (int, "", "id '' is no int"),
        (int, "017", "id '017' is no int"),
        (int, "1.0", "id '1.0' is no int as it is written: that is '1'"),
        (int, "1e3", "that is '1000'"),
        (int, "-0", "that is '0'"),
        (UUID, str(SOME).upper(), "as it is written: that is '12345678-9abc-def0-1234-56789abcdef0'"),
        (Colour, "blue", "is no Colour: Invalid enum value 'blue'"),
        (Annotated[str, msgspec.Meta(max_length=3)], "abcd", "Expected `str` of length <= 3"),
    ],
)
def test_a_text_that_is_none_is_refused(type: Any, text: str, says: str) -> None:
    """If "17" and "017" were both 17, one of two jobs would be lost in the dict that perform gets."""
    ids = id_type("worker q", type)
    assert ids
    for use in (ids.load, ids.dump):
        with pytest.raises(ValueError, match="id '") as caught:
            use(text)
        assert says in str(caught.value)


@pytest.mark.parametrize("id", [True, None, 1.5, SOME, object(), [1]])
def test_what_is_no_id_of_the_type_is_refused(id: Any) -> None:
    ids = id_type("worker q", int)
    assert ids
    with pytest.raises(ValueError, match="is no int"):
        ids.dump(id)
