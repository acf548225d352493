"""More and fewer nodes while a supervisor runs: by its load, and by a command. Its nodes say what a test wants."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from lowkiq_supervisor.control.client import ask
from lowkiq_supervisor.errors import CommandRefused
from tests.harness import Supervised, command, state_dir, status
from tests.support import wait_until

#: Seconds of the policy, for tests.
HASTY = {
    "policy.load.LOOK_INTERVAL": 0.05,
    "policy.load.GROW_AFTER": 0.3,
    "policy.load.SHRINK_AFTER": 0.6,
    # A slow machine may not let it look for a while.
    "policy.load.MISSED": 1000,
}
FULL, QUIET = "5 1000 3000", "0 0 0"


def says(directory: Path, load: str) -> None:
    (directory / "load.new").write_text(load)
    (directory / "load.new").rename(directory / "load")


def scaled(directory: Path, nodes: int | str) -> dict[str, Any]:
    return ask(state_dir(directory), "scale", nodes=nodes)


def ready(directory: Path) -> list[str]:
    """The titles of nodes that are ready."""
    return [node["title"] for node in status(directory)["nodes"] if node["state"] == "ready"]


def until_ready(directory: Path, nodes: int) -> None:
    """Wait until so many nodes are ready, and no other is there."""

    def is_so() -> bool:
        found = status(directory)
        return len(ready(directory)) == len(found["nodes"]) == nodes and not found["beside"]

    wait_until(is_so, f"{nodes} nodes", every=0.03)


def by_hand(directory: Path, nodes: int, behaviour: str = "obedient", **options: Any) -> Supervised:
    return Supervised.running(behaviour, directory, nodes=nodes, is_elastic=True, **options)


def test_it_grows_with_the_load_to_the_most_and_shrinks_to_the_least(tmp_path: Path) -> None:
    says(tmp_path, FULL)
    with Supervised.doing("loaded", tmp_path, range="1..3", constants=HASTY).ready(1) as supervisor:
        until_ready(tmp_path, 3)
        found = status(tmp_path)["supervisor"]
        assert (found["nodes"], found["number_of_nodes"], found["state"]) == (3, 3, "running")
        assert found["scale"]["range"] == [1, 3]
        assert found["scale"]["goal"] == 3
        assert found["scale"]["by_load"] is True
        assert found["scale"]["why"].startswith("for 0.3 s all threads were busy, and jobs late, by up to 3 s")

        says(tmp_path, QUIET)
        until_ready(tmp_path, 1)
        steps = [(line["before"], line["to"]) for line in supervisor.events("scaling")]
        assert steps == [(1, 2), (2, 3), (3, 2), (2, 1)]
        assert [line["slot"] for line in supervisor.events("sent_away")] == ["node 2", "node 1"]
        assert {line["reason"] for line in supervisor.events("ended")} == {"exit code 0"}
        assert not supervisor.events("died_will_restart")
        supervisor.end()


def test_growing_is_no_trouble_that_a_probe_would_see(tmp_path: Path) -> None:
    """While the first process of a new slot boots, nothing is missing."""
    with by_hand(tmp_path, 1, "failing_at_boot_beside_a_good_one") as supervisor:
        scaled(tmp_path, 2)
        supervisor.until_logged("started", slot="node 1")
        assert status(tmp_path)["supervisor"]["healthy"]
        (tmp_path / "fails").touch()
        supervisor.until_logged("died_will_restart", slot="node 1")
        assert not status(tmp_path)["supervisor"]["healthy"], "from here on it is trouble"
        (tmp_path / "healed").touch()
        until_ready(tmp_path, 2)
        supervisor.end()


def test_a_person_scales_both_ways_and_the_highest_slots_go(tmp_path: Path) -> None:
    with by_hand(tmp_path, 2) as supervisor:
        kept = {node["title"]: node["pid"] for node in status(tmp_path)["nodes"]}
        answer = command(tmp_path, "scale", "4", "--state-dir", str(state_dir(tmp_path)))
        assert (answer.returncode, answer.stdout) == (0, "from 2 to 4 nodes\n")
        until_ready(tmp_path, 4)
        assert ready(tmp_path) == ["node 0/2", "node 1/2", "node 2", "node 3"]
        shown = command(tmp_path, "status", "--state-dir", str(state_dir(tmp_path))).stdout
        assert "4 nodes  app" in shown

        assert scaled(tmp_path, 1) == {"ok": True, "before": 4, "goal": 1, "by_load": False}
        until_ready(tmp_path, 1)
        assert [line["slot"] for line in supervisor.events("sent_away")] == ["node 3", "node 2", "node 1/2"]
        assert {node["title"]: node["pid"] for node in status(tmp_path)["nodes"]} == {"node 0/2": kept["node 0/2"]}
        assert "1 nodes" in supervisor.title()
        again = command(tmp_path, "scale", "1", "--state-dir", str(state_dir(tmp_path)))
        assert again.stdout == "1 nodes, as before\n"
        supervisor.end()


def test_a_restart_keeps_the_number_and_a_replaced_slot_goes_when_it_is_over(tmp_path: Path) -> None:
    with by_hand(tmp_path, 2, "slowly_ready") as supervisor:
        scaled(tmp_path, 3)
        until_ready(tmp_path, 3)
        before = {node["pid"] for node in status(tmp_path)["nodes"]}
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        until_ready(tmp_path, 3)
        assert not before & {node["pid"] for node in status(tmp_path)["nodes"]}

        ask(state_dir(tmp_path), "restart", slot=2)
        supervisor.until_logged("replacing", 4)
        scaled(tmp_path, 1)  # the successor of slot 2 boots
        until_ready(tmp_path, 1)
        supervisor.until_logged("rolling_restart_over", 2)
        sent = [line["slot"] for line in supervisor.events("sent_away")]
        assert sent == ["node 2", "node 1/2"]
        assert supervisor.events("ended_for_successor", "node 2"), "first its successor came"
        supervisor.end()


def test_a_node_that_is_sent_away_is_killed_at_its_deadline_and_that_is_no_end_of_the_supervisor_s(
    tmp_path: Path,
) -> None:
    with by_hand(tmp_path, 2, "the_last_is_deaf", drain_timeout=0.0) as supervisor:
        scaled(tmp_path, 1)
        found = wait_until(lambda: status(tmp_path)["beside"], "the node on its way out")
        assert (found[0]["state"], found[0]["why"]) == ("draining", "goes: there are to be fewer")
        supervisor.until_logged("missed_deadline", slot="node 1/2")
        until_ready(tmp_path, 1)
        supervisor.end(code=0)


def test_a_supervisor_that_ends_while_a_node_goes_waits_for_it(tmp_path: Path) -> None:
    with by_hand(tmp_path, 2, "patient") as supervisor:
        scaled(tmp_path, 1)
        supervisor.until_logged("sent_away")
        supervisor.send(signal.SIGTERM)
        supervisor.until_logged("draining")
        with pytest.raises(CommandRefused, match="is draining: nothing is scaled"):
            scaled(tmp_path, 2)
        (tmp_path / "job-has-ended").touch()
        supervisor.ends(0)


def test_within_a_range_a_person_s_word_holds_until_the_load_may_decide_again(tmp_path: Path) -> None:
    says(tmp_path, QUIET)
    with Supervised.doing("loaded", tmp_path, range="1..4", constants=HASTY).ready(1) as supervisor:
        assert scaled(tmp_path, 3)["by_load"] is False
        until_ready(tmp_path, 3)
        shown = command(tmp_path, "status", "--state-dir", str(state_dir(tmp_path))).stdout
        assert "3 nodes of 1 to 4, by hand" in shown
        with pytest.raises(CommandRefused, match=r"scale 5 is outside of --nodes 1\.\.4: start the supervisor again"):
            scaled(tmp_path, 5)
        beats = status(tmp_path)["nodes"][0]["uptime"]
        wait_until(lambda: status(tmp_path)["nodes"][0]["uptime"] > beats + 2 * HASTY["policy.load.SHRINK_AFTER"])
        assert len(ready(tmp_path)) == 3, "quiet as it is"
        answer = command(tmp_path, "scale", "auto", "--state-dir", str(state_dir(tmp_path)))
        assert answer.stdout == "3 nodes, as before, by the load from here on\n"
        until_ready(tmp_path, 1)
        supervisor.end()


def test_quiet_nodes_are_no_quiet_minute(tmp_path: Path) -> None:
    says(tmp_path, FULL)
    with Supervised.doing("loaded", tmp_path, range="1..2", constants=HASTY).ready(1) as supervisor:
        until_ready(tmp_path, 2)
        supervisor.send(signal.SIGTSTP)
        supervisor.until_logged("quiet")
        says(tmp_path, QUIET)
        beats = status(tmp_path)["nodes"][0]["uptime"]
        wait_until(lambda: status(tmp_path)["nodes"][0]["uptime"] > beats + 2 * HASTY["policy.load.SHRINK_AFTER"])
        assert len(status(tmp_path)["nodes"]) == 2
        supervisor.end()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (0, "scale 0: give a number from 1 to 1,000, or auto"),
        (-1, "scale -1"),
        (1001, "scale 1001"),
        (True, "scale True"),
        (None, "scale None"),
        ("2", "scale '2'"),
        (2.5, "scale 2.5"),
        ("auto", "no range to go by the load in, such as --nodes 2..8"),
    ],
)
def test_what_is_no_number_of_nodes_is_refused(tmp_path: Path, nodes: Any, message: str) -> None:
    with by_hand(tmp_path, 1) as supervisor:
        with pytest.raises(CommandRefused) as refusal:
            scaled(tmp_path, nodes)
        assert message in str(refusal.value)
        assert not supervisor.events("scaling")


@pytest.mark.parametrize(
    ("behaviour", "options", "message"),
    [
        ("obedient", {"is_elastic": False}, "numbered .* Unset both on every machine and restart"),
        ("obedient", {"is_elastic": True, "burst": True}, "with --burst every node ends by itself"),
        ("with_a_splitter", {"is_elastic": True}, "build_splitter deals the shards to a fixed number of nodes"),
    ],
)
def test_nodes_that_can_t_be_scaled_are_not(
    tmp_path: Path, behaviour: str, options: dict[str, Any], message: str
) -> None:
    with Supervised.running(behaviour, tmp_path, nodes=2, **options) as supervisor:
        with pytest.raises(CommandRefused, match=message):
            scaled(tmp_path, 3)
        answer = command(tmp_path, "scale", "3", "--state-dir", str(state_dir(tmp_path)))
        assert answer.returncode == 1
        assert not supervisor.events("scaling")
        supervisor.end()


def test_with_its_own_redis_a_node_more_starts_when_redis_is_there(tmp_path: Path) -> None:
    with by_hand(tmp_path, 1, embedded=True) as supervisor:
        scaled(tmp_path, 2)
        until_ready(tmp_path, 2)
        supervisor.end()
