"""The line of a rate is told of once it has grown for a minute, whoever looks then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.queue import keys
from tests.admin.alerts.test_emptied import Watcher
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health


def test_a_line_that_grows_is_told_of(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    time = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(clock, "monotonic", lambda: time.now)
    driver = open_queue(app)
    driver.push("1", perform_in=4e9)
    tell_health(app, number_of_nodes=1, queues=["q"], waited_for={})
    watcher, line = Watcher(app), f"{keys.rate(app.settings.namespace, 'q')}planned"
    for seconds, ends_in, kinds in ((0, 300, []), (30, 400, []), (30, 250, []), (30, 500, ["rate"])):
        time.now += seconds
        app.redis().zadd(line, {"0:1": driver.now() + ends_in})
        assert watcher.kinds() == kinds, (seconds, ends_in)
    assert Watcher(app).kinds() == [], "who looks once does not know, unless somebody has noted it"
