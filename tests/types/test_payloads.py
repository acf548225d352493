"""Payloads of a type: loaded into it, refused where they don't fit, and never changed on the way."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import pickle
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, cast
from uuid import UUID

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from lowkiq import SettingsError, codec
from lowkiq.types.payloads import of_any_type, of_type


class Struct(msgspec.Struct):
    amount: float
    note: str | None = None
    tags: set[str] = set()


@dataclasses.dataclass
class Dataclass:
    amount: float
    note: str | None = None


@attrs.define
class Attrs:
    amount: float
    note: str | None = None


class Typed(TypedDict):
    amount: float
    note: NotRequired[str]


class Named(NamedTuple):
    amount: float


class Model(pydantic.BaseModel):
    amount: float
    note: str | None = None
    at: datetime.datetime | None = None


@pydantic.dataclasses.dataclass
class ModelDataclass:
    n: int


class Ident(msgspec.Struct, eq=False):
    """One that is equal to itself only."""

    amount: float | None


class Created(msgspec.Struct, tag=True):
    n: int


class Deleted(msgspec.Struct, tag=True):
    n: int


class Colour(enum.Enum):
    RED = "red"


NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
#: What loading raises: before msgspec 0.21 its errors are no ValueErrors.
REFUSED = (ValueError, msgspec.ValidationError)


def payloads(annotation: Any, load: Any = codec.load_payload, dump: Any = codec.dump_payload) -> Any:
    return of_type("worker q", annotation, load, dump)


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (Struct, Struct(1.5, "x", {"b", "a"})),
        (Dataclass, Dataclass(1.5)),
        (Attrs, Attrs(1.5, "x")),
        (Typed, {"amount": 1.5}),
        (Named, Named(1.5)),
        (Model, Model(amount=1.5, at=NOON)),
        (ModelDataclass, ModelDataclass(n=1)),
        (list[Model], [Model(amount=1.5)]),
        (Model | ModelDataclass, ModelDataclass(n=1)),
        (Created | Deleted, Deleted(1)),
        (int, 17),
        (str | None, None),
        (Literal["a", "b"], "b"),
        (Colour, Colour.RED),
        (UUID, UUID(int=7)),
        (datetime.datetime, NOON),
        (dict[str, list[Struct]], {"b": [Struct(1.0)], "a": []}),
        (dict[int, object], {5: {"x": [1, None]}}),
        (tuple[int, str], (1, "a")),
        (bytes, b"\x00\xff"),
    ],
)
def test_what_is_pushed_is_what_is_performed(annotation: Any, payload: Any) -> None:
    typed = payloads(annotation)
    data = typed.dump(payload)
    assert typed.load(data) == payload
    assert type(typed.load(data)) is type(payload)
    assert typed.dump(typed.load(data)) == data
    json.loads(data)


@pytest.mark.parametrize(
    ("annotation", "payload", "path"),
    [
        (Struct, {"amount": "x"}, "Expected `float`, got `str` - at `$.amount`"),
        (Struct, {}, "missing required field `amount`"),
        (Struct, Struct("x"), "Expected `float`, got `str` - at `$.amount`"),  # type: ignore[arg-type]
        (Dataclass, {"amount": 1, "note": 5}, "at `$.note`"),
        (Attrs, {"amount": None}, "at `$.amount`"),
        (Typed, {"amount": []}, "at `$.amount`"),
        (list[Struct], [{"amount": 1}, {"amount": {}}], "at `$[1].amount`"),
        (Model, {"amount": "x"}, "at `$.amount`"),
        (list[Model], [{"amount": 1}, {"amount": "x", "note": 7}], "at `$[1].amount`, and 1 more"),
        (Model, "", "at `$`"),
        (int, True, "Expected `int`, got `bool`"),
        (int, "", "Expected `int`, got `str`"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_path_of_the_wrong_field(
    annotation: Any, payload: Any, path: str
) -> None:
    typed = payloads(annotation)
    with pytest.raises(ValueError, match=r".") as pushed:
        typed.dump(payload)
    assert path in str(pushed.value)
    if isinstance(payload, dict | list | str):
        with pytest.raises(REFUSED, match=r".") as claimed:
            typed.load(json.dumps(payload).encode())
        assert path in str(claimed.value)


@pytest.mark.parametrize(
    ("annotation", "payload", "says"),
    [
        (Struct, Struct(math.nan), r"got `null` - at `\$.amount`"),
        (Ident, Ident(math.nan), r"payload\['amount'\] is nan, which JSON can't hold"),
        (Ident, {"amount": math.nan}, r"payload\['amount'\] is nan, which JSON can't hold"),
        (dict[str, float | None], {"a": math.inf}, r"payload\['a'\] is inf"),
        (Model | None, {"amount": 1, "note": math.nan}, "it would come back as Model"),
        (Struct | None, Created(1), "at `\\$`|missing required"),
        (Struct, Struct(1, None, cast(Any, ["a", "a"])), "it would come back as Struct"),
        (object, object(), "unsupported"),
        (dict[str, object], {"a": {1, 2}}, "it would come back as"),
    ],
)
def test_nothing_is_changed_silently(annotation: Any, payload: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        payloads(annotation).dump(payload)


def test_equal_payloads_are_equal_bytes() -> None:
    struct = payloads(Struct).dump
    assert struct(Struct(1, "x", {"a", "b"})) == struct(Struct(1.0, "x", {"b", "a"}))
    assert struct(Struct(1.5)) == struct({"tags": [], "note": None, "amount": 1.5})
    assert payloads(Ident).dump(Ident(1.0)) == payloads(Ident).dump(Ident(1.0))
    model = payloads(Model).dump
    assert model(Model(note="x", amount=1)) == model(Model(amount=1.0, note="x"))
    assert payloads(dict[str, int]).dump({"b": 1, "a": 2}) == payloads(dict[str, int]).dump({"a": 2, "b": 1})


def test_json_that_fits_is_pushed_as_it_is() -> None:
    """A field that a type does not know may be known to the next version of the worker."""
    assert payloads(Struct).dump({"amount": 1, "new": [2]}) == b'{"amount":1,"new":[2]}'
    assert payloads(Model).dump({"amount": 1, "new": [2]}) == b'{"amount":1,"new":[2]}'


def test_the_settings_own_load_and_dump_come_first() -> None:
    def dump(payload: Any) -> str:
        return f"v1 {json.dumps(payload)}"

    def load(data: bytes) -> Any:
        return json.loads(data.removeprefix(b"v1 "))

    for annotation, payload in ((Struct, Struct(1.5)), (Model, Model(amount=1.5, at=NOON)), (datetime.datetime, NOON)):
        typed = payloads(annotation, load, dump)
        data = typed.dump(payload)
        assert data.startswith(b"v1 ")
        assert typed.load(data) == payload
        with pytest.raises(REFUSED, match=r"`\$|Expected|valid"):
            typed.load(b'v1 {"amount": []}')


def test_a_payload_as_another_library_dumps_it() -> None:
    typed = payloads(Struct, msgspec.msgpack.decode, msgspec.msgpack.encode)
    assert typed.load(typed.dump(Struct(1.5, "x"))) == Struct(1.5, "x")


def test_a_number_that_json_can_t_hold_is_for_their_own_dump_to_hold() -> None:
    typed = payloads(dict[str, float], pickle.loads, pickle.dumps)
    assert math.isnan(typed.load(typed.dump({"a": math.nan}))["a"])


def test_a_class_of_the_user_s_own_is_left_to_their_own_load_and_dump() -> None:
    typed = payloads(list[OwnClass], pickle.loads, pickle.dumps)
    (loaded,) = typed.load(typed.dump([OwnClass()]))
    assert isinstance(loaded, OwnClass)
    assert typed.runs_user_code


class WithHook(msgspec.Struct):
    n: int

    def __post_init__(self) -> None: ...


class Deep(msgspec.Struct):
    hooks: dict[str, list[WithHook]]


class Recursive(msgspec.Struct):
    children: list[Recursive]


class WithFactory(msgspec.Struct):
    at: datetime.datetime = msgspec.field(default_factory=datetime.datetime.now)


class Lenient(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.ONE


@pytest.mark.parametrize("annotation", [WithHook, Deep, WithFactory, Attrs, Model, list[Lenient], ModelDataclass])
def test_to_load_what_runs_code_of_the_user_s_counts_as_user_code(annotation: Any) -> None:
    assert payloads(annotation).runs_user_code


@pytest.mark.parametrize("annotation", [Struct, Dataclass, Typed, Named, Recursive, int, Colour, Created | Deleted])
def test_to_load_what_runs_none_does_not(annotation: Any) -> None:
    assert not payloads(annotation).runs_user_code
    assert payloads(annotation, json.loads).runs_user_code
    assert not of_any_type(codec.load_payload, json.dumps).runs_user_code
    assert of_any_type(json.loads, json.dumps).runs_user_code


class OwnClass:
    pass


class HoldsModel(msgspec.Struct):
    model: Model


class Unknown(msgspec.Struct):
    field: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (OwnClass, "OwnClass is a class of its own; make it a msgspec.Struct or a dataclass"),
        (dict[str, OwnClass], "OwnClass is a class of its own"),
        (HoldsModel, "Model is a class of its own; make what holds it a model too"),
        (Unknown, "name 'Nowhere' is not defined"),
        (Struct | Dataclass, "more than one dict-like type"),
        (list[Model | OwnClass], "OwnClass"),
    ],
)
def test_a_type_that_can_t_be_made_is_refused(annotation: Any, says: str) -> None:
    with pytest.raises(SettingsError, match="worker q: payloads are annotated") as caught:
        payloads(annotation)
    assert says in str(caught.value)
