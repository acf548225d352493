"""Deploys by a link that leads to another directory each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowkiq_supervisor.directory import Links, linked
from tests.harness import Supervised, command
from tests.support import RedisServer

APP = """
from lowkiq import Lowkiq
from lowkiq.log import get_logger

def say(): get_logger().info("release", number={number})

app = Lowkiq(on_server_init=say)

@app.worker
def work(batch): ...
"""


@pytest.fixture
def current(tmp_path: Path) -> Path:
    for number in (1, 2):
        release = tmp_path / "releases" / str(number)
        release.mkdir(parents=True)
        (release / "shop.py").write_text(APP.format(number=number))
    return link_to(tmp_path / "current", 1)


def link_to(link: Path, number: int) -> Path:
    link.unlink(missing_ok=True)
    link.symlink_to(f"releases/{number}")
    return link


@pytest.mark.parametrize("is_named", [True, False])
def test_a_restart_runs_what_the_link_leads_to_or_says_that_it_does_not(
    current: Path, redis_server: RedisServer, is_named: bool
) -> None:
    first, second = (current.parent / f"releases/{number}" for number in (1, 2))
    named = {"PWD": str(current if is_named else first), "LOWKIQ_REDIS_URL": redis_server.url}
    with Supervised.main(first, "-r", "shop", **named).ready(1) as supervisor:
        link_to(current, 2)
        done = command(first, "restart", "--wait")
        assert done.returncode == 0
        assert [line["number"] for line in supervisor.events("release")] == [1, 2 if is_named else 1]
        says = f"{current} leads to {second} by now, and nodes run what is in {first}"
        assert (says in done.stdout) is not is_named
        assert len(supervisor.events("restarting_old_code")) == (0 if is_named else 1)
        supervisor.end()


def test_a_name_of_another_directory_or_of_none_is_not_followed(
    current: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(current)
    assert linked({"PWD": str(current)}) == {"PWD": str(current)}
    for name in ("", ".", str(tmp_path), str(tmp_path / "gone"), str(current.resolve())):
        assert linked({"PWD": name}) == {}
    assert Links.here({"PWD": str(current)}) == Links()


def test_links_to_what_is_above_are_found_and_tell_only_once_they_have_moved(
    current: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (current / "site").mkdir()
    monkeypatch.chdir(current / "site")
    links = Links.here({})
    assert [link for link, _ in links.found] == [current]
    assert links.moved() == ""
    link_to(current, 2)
    assert f"{current} leads to" in links.moved()
    link_to(current, 3)  # which is not there
    assert links.moved() == ""
