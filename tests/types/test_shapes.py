"""How a worker is called, as its signature says; and signatures that can't work, which are refused at registration."""

from __future__ import annotations

import asyncio
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import pytest

from lowkiq import Job, Lowkiq, PartialFailure, SettingsError, Worker
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer


class Change(msgspec.Struct):
    n: int


class Other(msgspec.Struct):
    n: int


class Nobodys:
    """A class that nothing knows how to make from JSON."""


class Holder(msgspec.Struct):
    nobodys: list[Nobodys]


class Expected(NamedTuple):
    is_async: bool
    is_one: bool


SYNC_BATCH, SYNC_ONE = Expected(False, False), Expected(False, True)
ASYNC_BATCH, ASYNC_ONE = Expected(True, False), Expected(True, True)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def unnamed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def batch(payloads_by_id: dict[str, list[Any]]) -> None: ...
def optional(payloads_by_id, dry=False): ...
def one(id, payloads): ...
def whatever(*arguments): ...
async def async_batch(payloads_by_id): ...
async def async_one(id: int, payloads: list[Change]) -> None: ...
def three(shop, id, payloads): ...


class Instance:
    async def __call__(self, payloads_by_id): ...


class Method:
    def one(self, id, payloads): ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (batch, SYNC_BATCH),
        (optional, SYNC_BATCH),
        (one, SYNC_ONE),
        (whatever, SYNC_BATCH),
        (lambda key, payloads: None, SYNC_ONE),
        (async_batch, ASYNC_BATCH),
        (async_one, ASYNC_ONE),
        (wrapped(one), SYNC_ONE),
        (wrapped(async_one), ASYNC_ONE),
        (functools.partial(three, "shop"), SYNC_ONE),
        (functools.partial(async_batch), ASYNC_BATCH),
        (functools.partial(wrapped(three), "shop"), SYNC_ONE),
        (Instance(), ASYNC_BATCH),
        (Method().one, SYNC_ONE),
    ],
)
def test_the_shape_of_a_function(app: Lowkiq, function: Any, expected: Expected) -> None:
    shape = app.worker(queue_name="q")(function).shape
    assert (shape.is_async, shape.is_one) == expected


def test_the_shape_of_a_class() -> None:
    class Base(Worker):
        def perform(self, payloads_by_id): ...

    class Static(Worker):
        @staticmethod
        async def perform(payloads_by_id): ...

    class One(Worker):
        def perform_one(self, id, payloads): ...

    class AsyncOne(Worker):
        @wrapped
        async def perform_one(self, id, payloads): ...

    class Inherited(Base): ...

    class Nothing(Worker):
        """Of an application that only pushes."""

    kinds: dict[type[Worker], Expected] = {
        Base: SYNC_BATCH, Static: ASYNC_BATCH, One: SYNC_ONE, AsyncOne: ASYNC_ONE, Inherited: SYNC_BATCH,
        Nothing: SYNC_BATCH,
    }  # fmt: skip
    for worker, expected in kinds.items():
        shape = Lowkiq().worker(worker).shape
        assert (shape.is_async, shape.is_one) == expected, worker


def no_parameters(): ...
def keyword_only(payloads_by_id, *, shop): ...
def generator(payloads_by_id):
    yield


async def async_generator(payloads_by_id):
    yield


def of_int(payloads: int): ...
def of_one_payload(payloads_by_id: dict[str, Change]): ...
def of_one_payload_an_id(id: int, payloads: Change): ...
def of_list_ids(id: list[int], payloads): ...
def of_bool_ids(id: bool, payloads): ...
def of_nobodys(id, payloads: list[Nobodys]): ...
def of_holders(id, payloads: list[Holder]): ...
def of_an_unsound_union(id, payloads: list[Change | Other]): ...
def of_what_is_not_there(payloads_by_id: dict[str, list[Nowhere]]): ...  # type: ignore[name-defined]  # noqa: F821


BOTH = "it may be (payloads_by_id), a dict from ids to lists of payloads, or (id, payloads), an id at a time"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_parameters, f"worker no_parameters takes (): {BOTH}"),
        (three, f"worker three takes (shop, id, payloads): {BOTH}"),
        (keyword_only, f"worker keyword_only needs the keyword shop, which nobody gives it: {BOTH}"),
        (generator, "worker generator is a generator, and would never run: make it a plain function, or `async def`"),
        (async_generator, "worker async_generator is an async generator, and would never run"),
        (
            of_int,
            "worker of_int: payloads is annotated int, but gets a dict from ids to lists of payloads: annotate it",
        ),
        (of_one_payload, "payloads_by_id is annotated Change, but payloads come as a list: annotate them list[…]"),
        (of_one_payload_an_id, "payloads is annotated Change, but payloads come as a list"),
        (of_list_ids, "ids are annotated list[int]; they may be str, int, UUID, an Enum, a Literal, a date"),
        (of_bool_ids, "ids are annotated bool; they may be str, int"),
        (
            of_nobodys,
            "payloads are annotated Nobodys, which they can't be turned into: Nobodys is a class of its own; ",
        ),
        (of_holders, "payloads are annotated Holder, which they can't be turned into: Nobodys is a class of its own; "),
        (of_an_unsound_union, "which they can't be turned into: If a type union contains multiple Struct types"),
        (
            of_what_is_not_there,
            "dict[str, list[Nowhere]], which can't be looked up: name 'Nowhere' is not defined. Low",
        ),
    ],
)
def test_a_signature_that_can_not_work_is_refused(app: Lowkiq, function: Any, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        app.worker(function)
    assert message in str(caught.value)
    assert app.workers == {}


def test_a_method_that_can_not_work_is_refused(app: Lowkiq) -> None:
    class Both(Worker):
        def perform(self, payloads_by_id): ...
        def perform_one(self, id, payloads): ...

    class TooMany(Worker):
        def perform(self, id, payloads): ...

    class TooFew(Worker):
        def perform_one(self, payloads): ...

    class Stream(Worker):
        async def perform(self, payloads_by_id):
            yield

    class Contradicts(Worker[Change]):
        def perform(self, payloads_by_id: dict[str, list[Other]]): ...  # type: ignore[override]

    refused: dict[type[Worker], str] = {
        Both: "worker Both has both perform and perform_one: keep one, for a batch or for (id, payloads)",
        TooMany: "worker TooMany: perform takes (id, payloads): it may be (payloads_by_id), a dict from ids to "
        "lists of payloads; perform_one takes (id, payloads), an id at a time",
        TooFew: "worker TooFew: perform_one takes (payloads): it may be (id, payloads), an id at a time",
        Stream: "worker Stream: perform is an async generator, and would never run",
        Contradicts: "worker Contradicts is a Worker[Change], but performs payloads of Other",
    }
    for worker, message in refused.items():
        with pytest.raises(SettingsError) as caught:
            app.worker(worker)
        assert message in str(caught.value)


def test_an_id_at_a_time_has_no_batches(app: Lowkiq) -> None:
    with pytest.raises(SettingsError, match="batch_size is 10, but it takes an id at a time: leave it out, or take"):
        app.worker(batch_size=10)(one)


def call(function: Any, payloads_by_id: dict[str, list[Any]]) -> Any:
    worker = Lowkiq().worker(queue_name="q")(function)
    return worker.shape.bind(worker())(payloads_by_id)


def test_an_id_at_a_time_gets_the_id_as_annotated_and_its_payloads() -> None:
    def plain(id, payloads):
        return id, payloads

    def typed(id: int, payloads):
        return id, payloads

    assert call(plain, {"17": ["a", "b"]}) == ("17", ["a", "b"])
    assert call(typed, {"17": ["a", "b"]}) == (17, ["a", "b"])


def test_a_batch_gets_its_ids_as_annotated() -> None:
    def typed(payloads_by_id: Mapping[UUID, Sequence[int]]):
        return payloads_by_id

    id = UUID(int=5)
    assert call(typed, {str(id): [1]}) == {id: [1]}


def test_a_plain_batch_is_handed_over_without_a_call_in_between() -> None:
    worker = Lowkiq().worker(batch)
    assert worker.shape.bind(worker()) is batch


def test_a_coroutine_function_under_a_decorator_is_awaited() -> None:
    ran: list[Any] = []

    async def function(payloads_by_id):
        ran.append(payloads_by_id)

    asyncio.run(call(wrapped(function), {"a": [1]}))
    assert ran == [{"a": [1]}]


P = TypeVar("P")


class Generic(Worker[P]):
    def perform(self, payloads_by_id: dict[str, list[P]]) -> None: ...


class Listing(Worker[list[P]]): ...


def test_the_type_of_payloads_comes_from_the_class_or_from_its_annotations() -> None:
    class Declared(Worker[Change]):
        def perform(self, payloads_by_id): ...

    class Annotated(Worker):
        def perform(self, payloads_by_id: dict[str, list[Change]]): ...

    class Twice(Worker[Change]):
        def perform_one(self, id: str, payloads: Sequence[Change]): ...

    class Inherited(Declared): ...

    class Filled(Generic[Change]): ...

    for worker in (Declared, Annotated, Twice, Inherited, Filled):
        assert Lowkiq().worker(worker).codec.load(b'{"n":1}') == Change(1), worker

    class Lists(Listing[Change]):
        def perform(self, payloads_by_id): ...

    class Bare(Generic):
        def perform(self, payloads_by_id): ...

    assert Lowkiq().worker(Lists).codec.load(b'[{"n":1}]') == [Change(1)]
    assert Lowkiq().worker(Bare).codec.load(b'{"n":1}') == {"n": 1}


class Checked(msgspec.Struct):
    n: int

    def __post_init__(self) -> None: ...


def test_a_performer_knows_whether_loading_runs_code_of_the_user_s(make_app: Any) -> None:
    """Which may kill the node: the lease tells the seat of it then (load_seated)."""

    def plain(id: int, payloads: list[Change]) -> None: ...
    def checked(id: int, payloads: list[Checked]) -> None: ...

    app = make_app()
    found = [
        Performer(app.worker(function)(), app.settings, lambda _: None, LoopThread()).is_loaded_by_user
        for function in (plain, checked)
    ]
    assert found == [False, True]


class Shop(enum.Enum):
    NORTH = "n"
    SOUTH = "s"


def test_a_partial_failure_names_ids_as_perform_has_them(make_app: Any) -> None:
    def perform(payloads_by_id: dict[Shop, list[int]]) -> None:
        raise PartialFailure({Shop.SOUTH: "no"})

    app = make_app()
    worker = app.worker(batch_size=2)(perform)()
    performer = Performer(worker, app.settings, lambda _: None, LoopThread())
    outcome = performer.perform([Job(id, [1], (1.0,), 1.0) for id in ("n", "s")])
    assert outcome
    assert [failure.id for failure in outcome.failed] == ["s"]


def method(self, payloads_by_id): ...


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"perform": lambda payloads_by_id: None}, r"perform takes \(payloads_by_id\), and has no self: write def"),
        ({"perform": lambda: None}, r"perform takes \(\), and has no self: write def perform\(self, payloads_by_id\)"),
        ({"perform_one": lambda id, payloads: None}, r"has no self: write def perform_one\(self, id, payloads\)"),  # noqa: A006
        ({"preform": lambda self, payloads: None}, "has no perform, but preform: did you mean `perform`"),
        ({"performone": lambda self, id, payloads: None}, "did you mean `perform_one`"),  # noqa: A006
        ({"perform": lambda self, jobs: None, "__init__": lambda self, url: None}, "__init__ can't be called without"),
    ],
)
def test_a_class_that_could_never_run_is_refused_as_it_is_registered(app, members, told):
    with pytest.raises(SettingsError, match=told):
        app.worker(type("Work", (Worker,), members))
    assert not app.workers


def test_a_method_of_a_class_is_no_function_of_an_id_and_its_payloads(app):
    with pytest.raises(SettingsError, match="as a method does, and nobody would give it self"):
        app.worker(method)


def test_a_class_that_only_pushes_needs_no_perform_whatever_else_it_has(app):
    app.worker(type("Work", (Worker,), {"run": lambda self: None, "format": 7}))
    app.worker(type("Static", (Worker,), {"perform": staticmethod(lambda payloads_by_id: None)}))
