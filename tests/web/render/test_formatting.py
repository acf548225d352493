"""Numbers, times and texts as people read them."""

from __future__ import annotations

import pytest

from lowkiq.web.render import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.0421, "42 ms"),
        (1.26, "1.3 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7_260, "2 h 1 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 400, "400 d"),
        (-5, "\N{MINUS SIGN}5.0 s"),
    ],
)
def test_a_duration_has_its_two_highest_units(value: float, text: str) -> None:
    assert formatting.seconds(value) == text


def test_an_age_is_in_whole_seconds_below_one() -> None:
    assert formatting.age(0.7) == "0 s"


@pytest.mark.parametrize(("at", "text"), [(99.5, "now"), (90, "10 s ago"), (220, "in 2 min")])
def test_a_moment_is_told_from_now(at: float, text: str) -> None:
    assert formatting.ago(at, 100) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_in_powers_of_two(value: float, text: str) -> None:
    assert formatting.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.04, "< 0.1"), (0.26, "0.3"), (9.84, "9.8"), (12_345.6, "12,346")]
)
def test_a_rate_has_the_digits_that_mean_something(value: float, text: str) -> None:
    assert formatting.rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (999, "999"), (1_500, "1.5k"), (2_000_000, "2M")])
def test_an_axis_has_short_numbers(value: float, text: str) -> None:
    assert formatting.compact(value) == text


def test_a_share_of_nothing_is_nothing() -> None:
    assert formatting.percent(0, 0) == formatting.NOTHING
    assert formatting.percent(1, 3) == "33 %"
    assert formatting.percent(1, 300) == "0.3 %"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([1, 2], "1, 2"),
        (range(20), "0\N{EN DASH}19"),
        ([*range(20), 24], "0\N{EN DASH}19, 24"),
        (range(3, 1_000, 50), "3, 53 … 953"),
        ([0, 1, 4, 5, 8, 9], "0, 1, 4, 5, 8, 9"),
        ([5, 3, 4, 3], "3\N{EN DASH}5"),
    ],
)
def test_shards_are_told_as_ranges(numbers: list[int], text: str) -> None:
    assert formatting.ranges(numbers) == text


def test_ranges_of_many_pieces_are_cut() -> None:
    primes = [2, 3, 7, 17, 37, 79, 163, 331, 673, 1_361, 2_729, 5_471, 10_949, 21_911]
    assert formatting.ranges(primes, 3) == "2, 3, 7, and 11 more"


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
def test_what_cannot_be_seen_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert formatting.printable(text) == shown


def test_a_long_text_is_cut_before_it_is_escaped() -> None:
    assert formatting.printable("\x00" * 1_000_000, 3) == r"\x00\x00\x00…"


def test_a_block_keeps_its_lines() -> None:
    assert formatting.block("a\r\nb\n\tc\x07") == "a\nb\n    c\\x07"
    assert formatting.block("x" * 100, 10) == "xxxxxxxxxx…"


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e300, -1e18])
def test_a_number_that_is_no_time_is_told_as_a_number(at: float) -> None:
    assert "UTC" not in formatting.moment(at)
    assert formatting.machine_time(at) is None


def test_scores_are_exact() -> None:
    assert formatting.score(1795264377.584156) == "1795264377.584156"
    assert formatting.score(3) == "3"
    assert formatting.score(0.1) == "0.10000000000000001"
