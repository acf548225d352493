"""When recurring jobs are due: intervals, cron's fields, and the days on which clocks change."""

from __future__ import annotations

import datetime
import re
import zoneinfo

import pytest

from lowkiq.errors import SettingsError
from lowkiq.recurrence import make_rule
from tests.support import ROOT

ROW = re.compile(r"^\| (?:([\w/]+), (\d{4}-\d\d-\d\d), .*?)? ?\| `([^`]+)` \| ([^|]+) \|$", re.MULTILINE)
TIME = re.compile(r"(\d\d:\d\d) \(([+-]\d\d:\d\d)\)")


def of_the_page() -> list[tuple[str, str, str, list[str]]]:
    """Zone, day, fields and times of each row of the page's table."""
    rows, zone, day = [], "", ""
    for found in ROW.finditer((ROOT / "docs/recurring.md").read_text("utf-8")):
        zone, day = found[1] or zone, found[2] or day
        rows.append((zone, day, found[3], [f"{time}{offset}" for time, offset in TIME.findall(found[4])]))
    return rows


@pytest.mark.parametrize(("zone", "day", "fields", "times"), of_the_page())
def test_days_on_which_clocks_change_are_as_the_page_says(zone: str, day: str, fields: str, times: list[str]) -> None:
    tz = zoneinfo.ZoneInfo(zone)
    first = datetime.datetime.fromisoformat(f"{day}T{times[0][:5]}").replace(tzinfo=tz)
    found: list[str] = []
    at = first.timestamp() - 3_700
    rule = make_rule(fields, tz=zone)
    while len(found) < len(times):
        at = rule.after(at)
        told = datetime.datetime.fromtimestamp(at, tz).isoformat(timespec="minutes")
        if told[:10] == day and (found or told.endswith(times[0])):
            found.append(told[11:])
        assert told[:10] <= day, found
    assert found == times
    if len(times) == 1:
        after = datetime.datetime.fromtimestamp(rule.after(at), tz)
        assert after.date().isoformat() > day


def test_the_page_has_two_zones_and_both_kinds_of_days() -> None:
    assert {(zone, day) for zone, day, _, _ in of_the_page()} == {
        ("Europe/Berlin", "2027-03-28"), ("Europe/Berlin", "2027-10-31"), ("America/New_York", "2027-03-14"),
        ("America/New_York", "2027-11-07"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("every", "seconds"),
    [
        (300, 300.0),
        (0.5, 0.5),
        ("90s", 90.0),
        ("15m", 900.0),
        ("1h 30m", 5_400.0),
        ("2d", 172_800.0),
        (datetime.timedelta(hours=1), 3_600.0),
    ],
)
def test_an_interval_counts_from_1970(every: object, seconds: float) -> None:
    rule = make_rule(every)  # type: ignore[arg-type]
    assert rule.every == seconds
    now = 1_795_000_000.123
    assert rule.after(now) == pytest.approx((now // seconds + 1) * seconds)
    assert rule.after(rule.after(now)) == pytest.approx(rule.after(now) + seconds)


def test_an_offset_shifts_it() -> None:
    rule = make_rule("1m", offset=10)
    assert [rule.after(at) for at in (69.9, 70.0, 129.0)] == [70.0, 130.0, 130.0]
    assert rule.words == "every 1 m, 10 s after"


@pytest.mark.parametrize("every", ["*/5 * * * *", "5m"])
def test_the_last_of_what_was_missed_is_made_up_for(every: str) -> None:
    rule = make_rule(every, missed="all", backlog=3)
    assert rule.due(900.0, 3_000.0) == [2_400.0, 2_700.0, 3_000.0]
    assert rule.due(2_700.0, 2_999.0) == [2_700.0]
    assert rule.due(2_700.0, 3_001.0) == [2_700.0, 3_000.0]
    assert make_rule(every).due(900.0, 3_000.0) == [900.0]
    skip = make_rule(every, missed="skip")
    assert skip.due(900.0, 3_030.0) == [3_000.0]
    assert skip.due(900.0, 3_061.0) == []


@pytest.mark.parametrize(
    ("every", "offset"),
    [
        (0.1, 0), (0.2, 0), (0.7, 0), (2.1, 0), (1 / 3, 0), (3_600 / 7, 0), (86_400 / 7, 0), (1, 1 / 3), (0.9, 0.1),
        (3_600, 1_234.567), (90, 0), (60, 1e-7),
    ],
)  # fmt: skip
def test_no_time_is_fired_twice_nor_left_out_though_redis_keeps_whole_microseconds(every: float, offset: float) -> None:
    rule = make_rule(every, offset=offset, missed="all", backlog=1_000)
    at = rule.after(1_795_717_000.123456)
    for _ in range(300):
        expected = float(f"{at:.6f}")  # as it comes from Redis
        assert rule.due(expected, expected + every * 0.9) == [expected]
        for near in (-1e-6, 0.0):
            assert rule.after(expected + near) == (expected if near else rule.after(expected))
        at = rule.after(expected)
        assert at - expected == pytest.approx(every, abs=2e-6)
    (first, *_, last) = due = rule.due(float(f"{rule.after(1_795_717_000.0):.6f}"), 1_795_717_000.0 + 20 * every)
    assert len(due) == len({f"{one:.6f}" for one in due}) == round((last - first) / every) + 1


def test_cron_says_which_package_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    assert make_rule("5m").every == 300.0
    for text in ("* * * * *", "@daily", "61 * * * *"):
        with pytest.raises(SettingsError, match=rf"every is '{re.escape(text)}': .*pip install \"lowkiq\[cron\]\""):
            make_rule(text)


@pytest.mark.parametrize("text", ["5x", "every day", "* * * *", "", "@dayly"])
def test_a_slip_is_not_sent_to_pip(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    with pytest.raises(SettingsError, match=rf"every is '{re.escape(text)}', which is neither an interval such as"):
        make_rule(text)
