"""Memory that a node shares with its supervisor."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from lowkiq.shared_page import MOST_GROUPS, REFUSAL_BYTES, SEAT_BYTES, SEATS, Bulletin, DeadNode, Running, SharedPage
from lowkiq_supervisor.processes.slots import Slot
from lowkiq_supervisor.restart_policy import Kind, RestartHistory, RestartPolicy


def test_what_a_process_ran_is_known_after_its_death() -> None:
    page = SharedPage()
    if os.fork() == 0:
        seats = [page.seat(number) for number in range(3)]
        for number, seat in enumerate(seats):
            seat.begin(f"lowkiq:{{orders:{number}}}:", 70 + number, 11, 3 * (number < 2))
            seat.place[0] = 6 + 5 * (number == 1)
        seats[1].end()
        os._exit(0)
    os.wait()
    assert page.running() == (
        Running("lowkiq:{orders:0}:", 70, 3, 5),
        Running("lowkiq:{orders:2}:", 72, 1 << 31, 0),
    )


def test_of_the_last_batch_no_more_is_known_to_run_than_there_is() -> None:
    page = SharedPage()
    seat = page.seat(0)
    seat.begin("p:", 1, 11, 3)
    seat.place[0] = 11
    assert page.running() == (Running("p:", 1, 2, 0),)


@pytest.mark.parametrize("how", ["too many threads", "too long a prefix"])
def test_what_ran_without_a_seat_is_not_known(how: str) -> None:
    page = SharedPage()
    page.seat(SEATS if how == "too many threads" else 0).begin("p" * SEAT_BYTES, 1, 1, 1)
    assert page.running() is None


def test_a_claim_that_has_only_begun_runs_nothing() -> None:
    page = SharedPage()
    seat = page.seat(0)
    seat.begin("lowkiq:{orders:0}:", 1, 1, 1)
    seat.place[0] = 1
    seat.begin("lowkiq:{orders:1}:", 2, 1, 1)
    assert page.running() == ()


def test_a_bulletin_written_after_the_fork_is_read_by_the_child() -> None:
    news = Bulletin((DeadNode("a", (Running("p:", 1, 1, 0),)), DeadNode("b")), ("node 2/4 fails",))
    page = SharedPage()
    written, reader = os.pipe()[::-1]
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        os._exit(page.read_bulletin() != news)
    page.write_bulletin(news)
    os.write(written, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("at", [0, 4, 12])
def test_a_bulletin_that_is_half_written_is_not_read(at: int) -> None:
    page = SharedPage()
    page.write_bulletin(Bulletin((DeadNode("a"),)))
    start = SEATS * SEAT_BYTES + at
    page._memory[start] ^= 1
    assert page.read_bulletin() == Bulletin()


def test_a_bulletin_that_is_too_long_keeps_what_fits() -> None:
    page = SharedPage()
    dead = tuple(DeadNode(f"host:{number}") for number in range(10_000))
    page.write_bulletin(Bulletin(dead, ("one", "two")))
    kept = page.read_bulletin()
    assert kept.dead_nodes and kept.dead_nodes == dead[: len(kept.dead_nodes)]


def test_groups_that_end_with_the_node_are_known_to_whoever_shares_the_page() -> None:
    page = SharedPage()
    assert page.groups() == []
    page.note_group(0, 17)
    page.note_group(MOST_GROUPS - 1, 4_194_304)
    page.seat(0).begin("shard", 1, 1, 1)
    assert page.groups() == [17, 4_194_304]
    assert page.running() == ()
    page.note_group(0, 0)
    assert page.groups() == [4_194_304]


def test_why_a_node_refused_to_start_is_told_by_its_supervisor() -> None:
    page = SharedPage()
    assert page.refusal() == ""
    page.write_refusal("x" * 2_000 + "SyntaxError: '(' was never closed (jobs.py, line 3)")
    assert len(page.refusal()) == REFUSAL_BYTES and page.refusal().endswith("never closed (jobs.py, line 3)")
    for told, shown in (
        ("can't use amqp://me:secret@far/ (/srv/jobs.py, line 7)", "can't use amqp://***@far/ (/srv/jobs.py, line 7)"),
        ("'redis://:a/secret@far/0': no", "'redis://***@far/0': no"),
        ("redis://far/0?password=secret, redis://token@far", "redis://far/0?password=***, redis://***@far"),
        ("no answer of http://far:80: see https://shop.de/a:b", "no answer of http://far:80: see https://shop.de/a:b"),
    ):
        page.write_refusal(told)
        assert page.refusal() == shown
    page.write_refusal("NameError: name 'é' is not defined (/srv/jobs.py, line 7)")
    launch: Any = None
    history = RestartHistory(RestartPolicy())
    slot: Any = Slot(title="node 0/1", index=0, number=0, history=history, launch=launch, grace=1)
    slot.child = SimpleNamespace(name="n", page=page)
    slot.emptied("exit code 3")
    slot.last_kind = Kind.REFUSED
    assert slot.why == "exit code 3, refused to start: NameError: name 'é' is not defined (/srv/jobs.py, line 7)"
    slot.child = SimpleNamespace(name="n", page=SharedPage())
    slot.emptied("signal 9")
    slot.last_kind = Kind.CRASH
    assert slot.why == "signal 9, failed after it was ready"
