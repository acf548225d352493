"""What can be pushed: the table in docs/workers.md, and the place of what can't be."""

from __future__ import annotations

import datetime
import enum
import importlib
import math
import re
from collections import Counter, OrderedDict, UserString, deque
from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

from lowkiq import InvalidJob, Lowkiq, Worker
from lowkiq.codec import dump_payload, load_payload

UTC = datetime.UTC


def sub(base: Any) -> Any:
    return type(f"My{base.__name__}", (base,), {})


class Scalar:
    """As those of NumPy are, which are of no type of Python's."""

    def __init__(self, value: Any, kind: str = "i") -> None:
        self.value, self.dtype = value, type("dtype", (), {"kind": kind})

    def item(self) -> Any:
        return self.value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    __hash__ = None  # type: ignore[assignment]


class Lazy:
    """As Django's SimpleLazyObject: it says that it is a str."""

    __class__ = str  # type: ignore[assignment]

    def encode(self, *_: str) -> bytes:
        return b"x"


class NotATime(datetime.datetime):
    """As pandas' NaT: a datetime that has no time."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = datetime.datetime.__hash__

    def utcoffset(self) -> Any:
        raise ValueError("NaTType does not support utcoffset")


class Fake(datetime.datetime):
    """As freezegun's FakeDatetime."""

    def __repr__(self) -> str:
        return "FakeDatetime"


class Word(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Named(int, enum.Enum):
    """Its `str()` is "Named.ONE"."""

    ONE = 1


class Field(NamedTuple):
    a: int


def of(library: str, make: Any) -> Any:
    """What a library makes, if it is installed."""
    try:
        return [make(importlib.import_module(library))]
    except ImportError:
        return []


AT: Any = datetime.datetime(2026, 11, 27, 6, 5, 4, 321, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
FAKE: Any = Fake
NOT_A_TIME: Any = NotATime
PARTS: Any = (2026, 11, 27, 6, 5, 4, 321)
#: Name in the table → examples, and the type to annotate them with.
EXAMPLES: dict[str, tuple[list[Any], Any]] = {
    "str": (["é", sub(str)("é")], str),
    "SafeString": (of("django.utils.safestring", lambda it: it.mark_safe("<b>")), str),
    "numpy.str_": ([sub(str)("x"), *of("numpy", lambda it: it.str_("x"))], str),
    "StrEnum": ([Word.A], Word),
    "int": ([5, sub(int)(5), 2**70, Named.ONE], int),
    "IntEnum": ([Number.ONE], Number),
    "numpy.int64": ([Scalar(5), *of("numpy", lambda it: it.int64(5)), *of("numpy", lambda it: it.uint8(5))], int),
    "bool": ([True], bool),
    "float": ([1.5, sub(float)(1.5)], float),
    "numpy.float64": (of("numpy", lambda it: it.float64(1.5)), float),
    "numpy.float32": ([Scalar(1.5, "f"), *of("numpy", lambda it: it.float32(0.1))], float),
    "numpy.bool_": ([Scalar(True, "b"), *of("numpy", lambda it: it.bool_(True))], bool),
    "datetime": ([AT, sub(datetime.datetime)(*PARTS, UTC)], datetime.datetime),
    "FakeDatetime": (
        [FAKE(*PARTS, AT.tzinfo), *of("freezegun.api", lambda it: it.FakeDatetime(*PARTS, UTC))],
        datetime.datetime,
    ),
    "pandas.Timestamp": (
        of("pandas", lambda it: it.Timestamp("2026-12-01T01:02:03.4", tz="Europe/Berlin")), datetime.datetime
    ),
    "pendulum.DateTime": (of("pendulum", lambda it: it.now("Europe/Berlin")), datetime.datetime),
    "date": ([AT.date(), sub(datetime.date)(2026, 1, 2)], datetime.date),
    "pendulum.Date": (of("pendulum", lambda it: it.date(2026, 1, 2)), datetime.date),
    "Decimal": ([Decimal("1.50"), sub(Decimal)("1.50")], Decimal),
    "UUID": ([UUID(int=5), sub(UUID)(int=5)], UUID),
    "time": ([datetime.time(1, 2), sub(datetime.time)(1, 2, 3, 4, UTC)], datetime.time),
    "timedelta": ([datetime.timedelta(1, 2, 3), sub(datetime.timedelta)(-1, 2, 3)], datetime.timedelta),
    "pandas.Timedelta": (of("pandas", lambda it: it.Timedelta(hours=30)), datetime.timedelta),
    "pendulum.Duration": (of("pendulum", lambda it: it.duration(days=40, seconds=1)), datetime.timedelta),
    "list": ([[1], sub(list)([1])], list[int]),
    "tuple": ([(1,), Field(1)], list[int]),
    "dict": ([{"a": 1}, sub(dict)(a=1)], dict[str, int]),
    "OrderedDict": ([OrderedDict(a=1)], dict[str, int]),
    "Counter": ([Counter("a")], dict[str, int]),
    "bytes": ([b"x", sub(bytes)(b"x")], bytes),
    "set": ([{1}], set[int]),
    "frozenset": ([frozenset({1})], frozenset[int]),
    "nan": ([math.nan, sub(float)("nan"), Scalar(math.nan, "f")], float),
    "inf": ([-math.inf, sub(float)("inf")], float),
    "lone surrogates": (["\ud800", sub(str)("\ud800")], str),
    "SimpleLazyObject": ([Lazy(), *of("django.utils.functional", lambda it: it.SimpleLazyObject(lambda: "x"))], str),
    "gettext_lazy": (of("django.utils.functional", lambda it: it.lazystr("x")), str),
    "UserString": ([UserString("x")], str),
    "numpy.ndarray": (of("numpy", lambda it: it.array([1])), list[int]),
    "pandas.Series": (of("pandas", lambda it: it.Series([1])), list[int]),
    "pandas.NaT": ([NotATime(*PARTS), *of("pandas", lambda it: it.NaT)], datetime.datetime),
    "numpy.datetime64": ([Scalar(5, "M"), *of("numpy", lambda it: it.datetime64("2026-01-01T00:00:00.5", "ns"))], int),
    "deque": ([deque([1])], list[int]),
    "Fraction": ([Fraction(1, 2)], float),
    "complex": ([1j], float),
}  # fmt: skip


def rows() -> list[tuple[str, list[str]]]:
    """The names in the table of docs/workers.md, each with its verdicts."""
    text = (Path(__file__).parents[2] / "docs" / "workers.md").read_text()
    table = text.split("| value | JSON | annotated | id | key of a dict |\n|---|---|---|---|---|\n")[1].split("\n\n")[0]
    found = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    return [(name, row[1:]) for row in found for name in re.findall(r"`([^`]+)`", row[0]) if name != "str(…)"]


def plain(app: Lowkiq) -> type[Worker[Any]]:
    def sync(id: Any, payloads: list[Any]) -> None: ...

    return app.worker(sync)


def accepted(app: Lowkiq, jobs: dict[str, Any], annotation: Any = None, *, id: Any = None) -> bool:
    """Pushes a job, of a worker with that type of payloads or ids, and tells whether it was taken."""

    def sync(id: Any, payloads: list[Any]) -> None: ...

    sync.__annotations__ = {"id": id or Any, "payloads": list[list[annotation]] if annotation else list}
    worker = app.worker(queue_name=f"q{len(app.workers)}")(sync)
    try:
        worker.perform_async([{"id": 1} | jobs])
    except InvalidJob as error:
        assert "traceback" not in str(error)
        return False
    return True


@pytest.mark.parametrize(("name", "verdicts"), rows())
def test_what_the_table_says_of_a_type_is_so(app: Lowkiq, name: str, verdicts: list[str]) -> None:
    examples, annotation = EXAMPLES[name]
    if not examples:
        pytest.skip(f"{name}: its library is not here")
    for value in examples:
        said = [verdict == "yes" for verdict in verdicts]
        typed = accepted(app, {"payload": [value]}, annotation)
        assert typed == said[1], value
        assert accepted(app, {"payload": {"a": [value]}}) == said[0], value
        assert accepted(app, {"id": value}) == said[2], value
        if verdicts[2] == "if annotated":
            assert accepted(app, {"id": value}, id=annotation), value
        if isinstance(value, Hashable):
            assert accepted(app, {"payload": {value: 1}}) == said[3], value


def test_all_examples_are_in_the_table() -> None:
    assert EXAMPLES.keys() == {name for name, _ in rows()}


@pytest.mark.parametrize("name", [name for name, verdicts in rows() if verdicts[0] == "yes"])
def test_what_is_taken_is_what_perform_gets(name: str) -> None:
    for value in EXAMPLES[name][0]:
        loaded = load_payload(dump_payload([value]))
        assert (loaded == [value] or loaded == [list(value)]) and type(loaded[0]).__module__ == "builtins"


@pytest.mark.parametrize(
    ("id", "text"),
    [(Named.ONE, "1"), (Word.A, "a"), (sub(int)(5), "5"), (Scalar(5), "5"), (sub(str)("x"), "x"), (Number.ONE, "1")],
)
def test_an_id_is_what_it_is_and_not_what_its_class_prints(app: Lowkiq, id: Any, text: str) -> None:
    worker = plain(app)
    worker.perform_async([{"id": id}])
    assert [job.id for job in worker.queries.fetch([id])] == [text]


class Order(msgspec.Struct):
    lines: list[Any]
    at: datetime.datetime | None = None


class Rate(msgspec.Struct):
    rates: list[float]


class RateModel(pydantic.BaseModel):
    rate: float


class Model(pydantic.BaseModel):
    note: str
    at: datetime.datetime | None = None
    more: Any = None


SURROGATE = r"is '\\ud800', which can't be written in UTF-8: escape it first"


@pytest.mark.parametrize(
    ("annotation", "payload", "says"),
    [
        (Any, {"a": [sub(str)("\ud800")]}, rf"payload\['a'\]\[0\] {SURROGATE}"),
        (Any, {"a": {"\ud800": 1}}, r"a key of payload\['a'\] is '\\ud800', which"),
        (Any, {"a": [10**5000]}, r"payload\['a'\]\[0\] is an integer of more than 4,300 digits"),
        (Any, {"a": [Lazy()]}, r"payload\['a'\]\[0\] is a Lazy, which JSON can't hold"),
        (Any, {"a": [{Lazy(): 1}]}, r"payload\['a'\]\[0\] has the key .*JSON's keys are strings"),
        (Any, {"a": [sub(float)("nan")]}, r"payload\['a'\]\[0\] is nan"),
        (Any, {"a": [sub(datetime.date)(2026, 1, 2)]}, r"payload\['a'\]\[0\] is a Mydate, which JSON can't hold"),
        (Order, Order([deque()]), r"payload\['lines'\]\[0\]: .*deque is unsupported: convert it"),
        (Order, Order([{"x": "\ud800"}]), rf"payload\['lines'\]\[0\]\['x'\] {SURROGATE}"),
        (Order, Order([], NotATime(*PARTS)), r"payload\['at'\]: .*NotATime is unsupported"),
        (Order, {"lines": [1j]}, r"payload\['lines'\]\[0\]: .*complex is unsupported"),
        (Order, Order([{"x": {1}}]), r"come back as Order\(.*: payload\['lines'\]\[0\]\['x'\] is \{1\}"),
        (dict[str, object], {"a": [AT]}, r"come back as .*: payload\['a'\]\[0\] is datetime"),
        (Model, Model(note="x", more={"a": [deque()]}), r"come back as .*: payload\['more'\]\['a'\]\[0\] is deque"),
        (Model, Model(note="x", more={"a": [Lazy()]}), r"payload\['more'\]\['a'\]\[0\] is a Lazy, which"),
        (float, 2**53 + 1, r"come back as 9007199254740992\.0"),
        (Rate, {"rates": [0.5, 2**53 + 1]}, r"come back as Rate\(.*: payload\['rates'\]\[1\] is 9007199254740993"),
        (Rate, Rate([2**63 + 1]), r"come back as Rate\(.*: payload\['rates'\]\[0\] is 9223372036854775809"),
        (dict[str, float], {"a": 10**23 + 1}, r"come back as .*: payload\['a'\] is 100000000000000000000001"),
        (RateModel, {"rate": -(2**53) - 1}, r"come back as RateModel\(.*: payload\['rate'\] is -9007199254740993"),
        (Model, {"note": "\ud800"}, rf"payload\['note'\] {SURROGATE}"),
        (list[datetime.datetime], [AT, Lazy()], r"payload\[1\] is a Lazy, which JSON can't hold"),
    ],
)
def test_a_refusal_names_the_place(app: Lowkiq, annotation: Any, payload: Any, says: str) -> None:
    def sync(id: Any, payloads: list[Any]) -> None: ...

    sync.__annotations__["payloads"] = list[annotation]
    worker = app.worker(sync)
    with pytest.raises(InvalidJob, match=rf"job 0 \(id 1\): payload can't be dumped: (it would )?{says}"):
        worker.perform_async([{"id": 1, "payload": payload}])


def test_what_a_model_s_fields_may_hold(app: Lowkiq) -> None:
    def sync(id: Any, payloads: list[Model]) -> None: ...

    at = FAKE(*PARTS, UTC)
    model = Model(note=sub(str)("x"), at=at, more=[Scalar(5), sub(int)(6), sub(float)(1.5)])
    app.worker(sync).perform_async([{"id": 1, "payload": model}])
    (job,) = app.workers["sync"].queries.fetch([1])
    assert job.payloads == [{"note": "x", "at": "2026-11-27T06:05:04.000321Z", "more": [5, 6, 1.5]}]


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}])
def test_what_needs_the_slow_way_and_is_nested_without_end_is_refused_in_few_words(wrap: Any) -> None:
    value: Any = sub(str)("\ud800")
    for _ in range(5_000):
        value = wrap(value)
    with pytest.raises(ValueError, match="nested too deeply") as caught:
        dump_payload(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (sub(datetime.datetime)(*PARTS), r"perform_in 2026-11-27 06:05:04.000321 has no time zone.*: give it one"),
        (NOT_A_TIME(*PARTS, UTC), "perform_in is .*, which is no time: leave it out for now, or give one"),
    ],
)
def test_a_due_time_of_another_library_is_refused_as_a_datetime_is(app: Lowkiq, at: Any, says: str) -> None:
    worker = plain(app)
    with pytest.raises(InvalidJob, match=says):
        worker.perform_async([{"id": 1, "perform_in": at}])


def test_due_times_of_pandas(app: Lowkiq) -> None:
    pandas = pytest.importorskip("pandas")
    worker = plain(app)
    with pytest.raises(InvalidJob, match="perform_in 2026-12-01 00:00:00 has no time zone"):
        worker.perform_async([{"id": 1, "perform_in": pandas.Timestamp("2026-12-01")}])
    with pytest.raises(InvalidJob, match="perform_in is NaT, which is no time"):
        worker.perform_async([{"id": 1, "perform_in": pandas.NaT}])
    worker.perform_async([{"id": 1, "perform_in": pandas.Timestamp("2099-12-01", tz="UTC")}])
    (job,) = worker.queries.fetch([1])
    assert job.perform_in == datetime.datetime(2099, 12, 1, tzinfo=UTC).timestamp()
