"""What a heartbeat survives."""

from __future__ import annotations

import errno

from structlog.testing import capture_logs

from lowkiq import Lowkiq
from lowkiq.admin.nodes import NodeHealth
from lowkiq.node.heartbeat import Heartbeat
from tests.node.driven import runtime_of


def test_it_goes_on_when_there_is_nothing_to_tell(app: Lowkiq) -> None:
    """Jobs may take every descriptor of the process for a moment: the node must not be missing for ever after."""
    asked: list[float | None] = []

    def report(round_trip: float | None) -> NodeHealth:
        asked.append(round_trip)
        if len(asked) > 1:
            heartbeat.stop()
        raise OSError(errno.EMFILE, "Too many open files", "/proc/1/stat")

    heartbeat = Heartbeat(runtime_of(app), report, lambda: None)
    heartbeat.beat_soon()
    with capture_logs() as logged:
        heartbeat.run()
    assert (len(asked), [entry["event"] for entry in logged]) == (2, ["beat_failed"] * 2)
