"""A function that @app.worker or @app.every decorates stays a function: it is called, and known by its signature."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker, testing
from lowkiq.registration import made


def test_a_function_that_is_decorated_runs_when_it_is_called(app: Lowkiq) -> None:
    @app.worker
    def ship(id: int, payloads: list[str], carrier: str = "post") -> str:
        """Ships an order."""
        return f"{id}: {payloads} by {carrier}"

    @app.worker(batch_size=5)
    def of_batch(payloads_by_id: dict[str, list[int]]) -> int:
        return sum(map(len, payloads_by_id.values()))

    @app.worker
    async def awaited(id: str, payloads: list[Any]) -> str:
        return id

    assert ship(17, ["paid"]) == "17: ['paid'] by post"
    assert ship(id=17, payloads=["paid"], carrier="air") == "17: ['paid'] by air"
    assert of_batch({"a": [1, 2]}) == 2
    assert asyncio.run(awaited("a", [])) == "a"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'payloads'"):
        ship(17)  # type: ignore[call-overload]


def test_it_keeps_its_signature_and_its_words(app: Lowkiq) -> None:
    def ship(id: int, payloads: list[str], carrier: str = "post") -> None:
        """Ships an order."""

    worker = app.worker(ship)
    assert inspect.signature(worker) == inspect.signature(ship)
    assert (worker.__doc__, worker.__name__) == (ship.__doc__, "ship")


def test_it_is_a_worker_as_well(app: Lowkiq) -> None:
    @app.worker
    def ship(id: int, payloads: list[str]) -> int:
        return id

    assert isinstance(ship, type) and issubclass(ship, Worker) and isinstance(ship(), ship)
    assert ship().perform_one(17, []) == made(ship).perform_one(17, []) == 17

    def both(carrier: str, id: int, payloads: list[str]) -> str:
        return f"{id} by {carrier}"

    assert app.worker(functools.partial(both, "air"))(17, []) == "17 by air"


def test_a_function_without_parameters_that_recurs_runs_when_it_is_called(app: Lowkiq) -> None:
    ran = []

    @app.every("1h")
    def nightly() -> str:
        ran.append("nightly")
        return "done"

    @app.every("1h")
    async def hourly() -> str:
        return "done"

    functions: list[Any] = [nightly, hourly]
    assert functions[0]() == asyncio.run(functions[1]()) == "done"
    with testing.inline(app):
        nightly.perform_async([{"id": "nightly"}])
    assert ran == ["nightly", "nightly"]


def test_a_class_is_made_as_any_other(app: Lowkiq) -> None:
    @app.worker
    class Ship(Worker):
        def __init__(self, carrier: str = "post") -> None:
            self.carrier = carrier

        def perform_one(self, id: str, payloads: list[Any]) -> str:
            return self.carrier

    assert (Ship().perform_one("a", []), Ship("air").perform_one("a", [])) == ("post", "air")
