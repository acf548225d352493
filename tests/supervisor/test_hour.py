"""An hour of work, in one minute: see hour.py. `make hour` takes ten."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.supervisor.hour import Hour
from tests.support import running_redis

pytestmark = pytest.mark.rare


@pytest.mark.timeout(600)
def test_one_supervisor_goes_through_it_all(tmp_path: Path) -> None:
    with running_redis("--appendonly", "yes") as server:
        Hour(tmp_path, server, 60, random.Random(1)).run()
