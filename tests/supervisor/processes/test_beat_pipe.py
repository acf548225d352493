"""The beat pipe between a node and its supervisor."""

from __future__ import annotations

import os
import signal

import pytest

from lowkiq_supervisor.processes.beat_pipe import Beat, BeatReader, BeatWriter


def test_beats_arrive_in_order_and_odd_words_are_left_alone() -> None:
    reader, writer = os.pipe()
    beat, beats = BeatWriter(writer), BeatReader(reader)
    beat("starting")
    beat("ready 3 17 and what a later node may add")
    beat("quiet many")
    assert beats.read() == [Beat("starting"), Beat("ready", 3, 17), Beat("quiet", 0)]
    assert not beats.ended
    os.close(writer)
    assert beats.read() == []
    assert beats.ended
    beats.close()


def test_half_a_line_waits_for_its_end() -> None:
    reader, writer = os.pipe()
    beats = BeatReader(reader)
    os.write(writer, b"starting\nrea")
    assert beats.read() == [Beat("starting")]
    os.write(writer, b"dy\n")
    assert beats.read() == [Beat("ready")]
    os.close(writer)
    beats.close()


def test_a_supervisor_that_does_not_read_delays_nobody() -> None:
    reader, writer = os.pipe()
    beat = BeatWriter(writer)
    for _ in range(20_000):
        beat("ready")
    os.close(reader)
    os.close(writer)


def test_a_supervisor_that_is_gone_makes_the_node_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    reader, writer = os.pipe()
    os.close(reader)
    BeatWriter(writer)("ready")
    os.close(writer)
    assert sent == [(os.getpid(), signal.SIGTERM)]
