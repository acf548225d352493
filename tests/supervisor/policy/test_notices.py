"""Notices: sentences about nodes in trouble, which running nodes are told for their heartbeats."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.harness import Supervised
from tests.support import wait_until

AT_ONCE = {"first_delay": 0.01, "longest_delay": 0.05}


def notices(directory: Path) -> list[str]:
    """The notices as the first node has read them."""
    told = directory / "told-0"
    found: list[str] = json.loads(told.read_text())[1:] if told.exists() else []
    return found


def test_a_slot_that_keeps_failing_is_told_until_it_is_well_again(tmp_path: Path) -> None:
    policy = AT_ONCE | {"healthy_after": 0.2}
    with Supervised.doing("listening_beside_a_bad_one", tmp_path, nodes=2, policy=policy) as supervisor:
        (told,) = wait_until(lambda: notices(tmp_path), "the notice")
        assert told.startswith("crash loop: node 1/2 can't start since ")
        assert "times by now: exit code 1, failed before it was ready; see its log" in told
        (tmp_path / "healed").touch()
        wait_until(lambda: not notices(tmp_path), "its end")
        supervisor.end()


def test_a_stopped_roll_and_a_node_cut_off_while_it_retires_are_told(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_age": 0.5, "policy": AT_ONCE}
    with Supervised.running("cut_off_as_it_retires", tmp_path, nodes=1, **options) as supervisor:
        wait_until(lambda: any("cut off when replaced" in text for text in notices(tmp_path)), "the notice")
        (tmp_path / "broken").touch()
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("roll_stopped")
        (told,) = wait_until(lambda: [text for text in notices(tmp_path) if "stopped" in text], "the other notice")
        assert told.startswith(
            "roll stopped: a rolling restart has stopped: the successor of node 0/1 failed: exit code 3"
        )
