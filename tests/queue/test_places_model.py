"""Random histories of a queue's places beside a model of them; and mutants of their scripts, which these find out."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from lowkiq import Lowkiq
from lowkiq.queue.call import Caller
from tests import mutants
from tests.queue.model.places_model import History
from tests.queue.model.virtual_clock import VirtualClock

STEPS = 60
#: Histories within which a mutant must have been found out.
ENOUGH = 300


def run_history(app: Lowkiq, clock: VirtualClock, seed: int) -> None:
    app.redis().flushall()
    clock.set(clock.now + 100_000_000)
    history = History(app.redis(), Caller(app.redis()), clock, app.settings.namespace, Random(seed))
    try:
        for _ in range(STEPS):
            history.step()
    finally:
        history.bell.close()


@pytest.mark.parametrize("seed", range(20))
def test_places_are_what_their_model_says(app: Lowkiq, clock: VirtualClock, seed: int) -> None:
    run_history(app, clock, seed)


@pytest.mark.parametrize("name", mutants.OF_PLACES)
def test_a_mutant_of_places_is_found_out(
    make_app: Callable[..., Lowkiq], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutant = mutants.OF_PLACES[name]
    mutants.replace(mutant.file, mutant.safeguard, mutant.instead, monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(ENOUGH):
            run_history(make_app(), clock, seed)
