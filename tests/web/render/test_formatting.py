"""Numbers, times and texts as people read them."""

from __future__ import annotations

import pytest

from lowkiq.admin.words import age, printable, ranges, seconds
from lowkiq.web.render import formatting
from lowkiq.web.render.formatting import ago, compact, percent, rate, score, size

FORMATS = [
    # A duration has its two highest units.
    (seconds, 0, "0 s"),
    (seconds, 0.0421, "42 ms"),
    (seconds, 1.26, "1.3 s"),
    (seconds, 59.9, "59 s"),
    (seconds, 60, "1 min"),
    (seconds, 200, "3 min 20 s"),
    (seconds, 7_260, "2 h 1 min"),
    (seconds, 90_000, "1 d 1 h"),
    (seconds, 86_400 * 400, "400 d"),
    (seconds, -5, "\N{MINUS SIGN}5.0 s"),
    # An age is in whole seconds.
    (age, 0.7, "0 s"),
    # Sizes are in powers of two.
    (size, 0, "0 B"),
    (size, 1_023, "1023 B"),
    (size, 1_536, "1.5 KiB"),
    (size, 1 << 20, "1.0 MiB"),
    (size, 5 << 40, "5.0 TiB"),
    # A rate has the digits that mean something.
    (rate, 0, "0"),
    (rate, 0.04, "< 0.1"),
    (rate, 0.26, "0.3"),
    (rate, 9.84, "9.8"),
    (rate, 12_345.6, "12,346"),
    # An axis has short numbers.
    (compact, 0, "0"),
    (compact, 999, "999"),
    (compact, 1_500, "1.5k"),
    (compact, 2_000_000, "2M"),
    # Scores are exact.
    (score, 1795264377.584156, "1795264377.584156"),
    (score, 3, "3"),
    (score, 0.1, "0.10000000000000001"),
    # Shards are told as ranges.
    (ranges, [], ""),
    (ranges, [7], "7"),
    (ranges, [1, 2], "1, 2"),
    (ranges, [2, 6, 10], "2, 6, 10"),
    (ranges, range(20), "0\N{EN DASH}19"),
    (ranges, [*range(20), 24], "0\N{EN DASH}19, 24"),
    (ranges, range(3, 1_000, 50), "3, 53 … 953"),
    (ranges, [0, 1, 4, 5, 8, 9], "0, 1, 4, 5, 8, 9"),
    (ranges, [5, 3, 4, 3], "3\N{EN DASH}5"),
]


@pytest.mark.parametrize(("format", "value", "text"), FORMATS)
def test_a_value_is_written_for_people(format, value, text):
    assert format(value) == text


@pytest.mark.parametrize(("at", "text"), [(99.5, "now"), (90, "10 s ago"), (220, "in 2 min")])
def test_a_moment_is_told_from_now(at, text):
    assert ago(at, 100) == text


def test_a_share_of_nothing_is_nothing():
    assert [percent(0, 0), percent(1, 3), percent(1, 300)] == [formatting.NOTHING, "33 %", "0.3 %"]


def test_ranges_of_many_pieces_are_cut():
    primes = [2, 3, 7, 17, 37, 79, 163, 331, 673, 1_361, 2_729, 5_471, 10_949, 21_911]
    assert ranges(primes, 3) == "2, 3, 7, and 11 more"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order-17", "order-17"),
        ("Zoë 見積", "Zoë 見積"),
        ("a\nb\tc\x00", r"a\nb\tc\x00"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("half \udcff", r"half \udcff"),
        ("\U000e0041tag", r"\U000e0041tag"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_an_escape(text, shown):
    assert printable(text) == shown


def test_a_long_text_is_cut_before_it_is_escaped():
    assert printable("\x00" * 1_000_000, 3) == r"\x00\x00\x00…"


def test_a_block_keeps_its_lines():
    assert formatting.block("a\r\nb\n\tc\x07") == "a\nb\n    c\\x07"
    assert formatting.block("x" * 100, 10) == "xxxxxxxxxx…"


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e300, -1e18])
def test_a_number_that_is_no_time_is_told_as_a_number(at):
    assert "UTC" not in formatting.moment(at)
    assert formatting.machine_time(at) is None
