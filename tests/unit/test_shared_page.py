"""Memory that a node shares with its supervisor."""

from __future__ import annotations

import os

import pytest

from lowkiq.shared_page import BULLETIN_BYTES, Bulletin, DeadNode, Running, SharedPage


def test_what_a_process_ran_is_known_after_its_death() -> None:
    page = SharedPage()
    if os.fork() == 0:
        seats = [page.seat(number) for number in range(3)]
        for number, seat in enumerate(seats):
            seat.begin(f"lowkiq:{{orders:{number}}}:".encode(), 70 + number)
            seat.run(2, 5 << 20)
        seats[1].end()
        os._exit(0)
    os.wait()
    assert page.running() == (
        Running("lowkiq:{orders:0}:", 70, 2, 5 << 20),
        Running("lowkiq:{orders:2}:", 72, 2, 5 << 20),
    )


def test_a_claim_that_has_only_begun_runs_nothing() -> None:
    page = SharedPage()
    seat = page.seat(0)
    seat.begin(b"lowkiq:{orders:0}:", 1)
    seat.run(1, 0)
    seat.begin(b"lowkiq:{orders:1}:", 2)
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
    start = len(page._memory) - BULLETIN_BYTES + at
    page._memory[start] ^= 1
    assert page.read_bulletin() == Bulletin()


def test_a_bulletin_that_is_too_long_keeps_what_fits() -> None:
    page = SharedPage()
    dead = tuple(DeadNode(f"host:{number}") for number in range(10_000))
    page.write_bulletin(Bulletin(dead, ("one", "two")))
    kept = page.read_bulletin()
    assert kept.dead_nodes and kept.dead_nodes == dead[: len(kept.dead_nodes)]
