"""Failpoints of nodes, as test_failpoints.py has those of others."""

from __future__ import annotations

import pytest

from tests.faults.failpoints.tripwire import HOWS
from tests.faults.test_failpoints import NODES, params, strike
from tests.support import RedisServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize("how", params(HOWS))
@pytest.mark.parametrize("kind", params(NODES))
def test_struck_at_any_call_it_loses_nothing(redis_server: RedisServer, kind: str, how: str) -> None:
    strike(redis_server, kind, how)
