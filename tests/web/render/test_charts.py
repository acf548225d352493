"""Charts read without a script, without colours, and where there is nothing."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from lowkiq.admin.past.history import Point
from lowkiq.web.render import formatting
from lowkiq.web.render.charts import Chart, Line, charts_of, rates, round_count, round_seconds, sparkline

SVG = {"svg": "http://www.w3.org/2000/svg"}


def chart(*lines, times=None, title="Jobs"):
    at = times if times is not None else [float(10 * index) for index in range(len(lines[0].values))]
    return Chart(title, lines, at, 0, 100, 10, formatting.number, formatting.compact, round_count)


def path_of(drawn):
    return re.findall(r'<path class="line c1" d="([^"]*)"', drawn)[0]


def point(at, **values):
    zeros = dict.fromkeys(("length", "retries", "busy", "morgue_length", "processed", "failed", "pushed", "merged"), 0)
    return Point(**({"at": at, "lag": 0.0} | zeros | values))


def test_a_chart_is_described_in_words():
    drawn = chart(Line("busy", "c1", [4.0, 9.0, 2.0]))
    assert drawn.description == "busy: at the end 2, lowest 2, highest 9"
    assert 'role="img"' in drawn.svg
    assert "<title>Jobs</title><desc>busy: at the end 2, lowest 2, highest 9</desc>" in drawn.svg


def test_a_chart_is_well_formed_and_has_no_style_of_its_own():
    svg = chart(Line("a", "c1", [1, None, 3]), Line("b", "c2", [None, None, None])).svg
    ET.fromstring(svg)
    assert "style" not in svg


def test_a_line_breaks_where_nothing_is_known_and_where_samples_are_missing():
    assert path_of(chart(Line("a", "c1", [1, 2, None, 4, 5])).svg).count("M") == 2
    assert path_of(chart(Line("a", "c1", [1, 2, 3, 4]), times=[0, 10, 60, 70]).svg).count("M") == 2


def test_a_point_alone_can_be_seen():
    assert path_of(chart(Line("a", "c1", [None, 2, None])).svg).endswith("h4")


def test_each_column_tells_when_and_what():
    columns = ET.fromstring(chart(Line("busy", "c1", [4, None])).svg).findall(".//rect/title")
    assert [column.text for column in columns] == [
        "1970-01-01 00:00:00 UTC\nbusy 4",
        "1970-01-01 00:00:10 UTC\nbusy unknown",
    ]


def test_a_long_chart_has_few_columns_that_tell_the_highest():
    values = [float(index % 7) for index in range(180)]
    drawn = chart(Line("a", "c1", values), times=[index / 2 for index in range(180)]).svg
    assert len(ET.fromstring(drawn).findall(".//rect")) == 60


def test_names_are_escaped():
    svg = chart(Line("<script>", "c1", [1]), title='"><script>alert(1)</script>').svg
    assert "<script" not in svg
    ET.fromstring(svg)


@pytest.mark.parametrize(
    ("round_up", "value", "top"),
    [
        *((round_count, *row) for row in {0: 2, 1: 2, 3: 4, 5: 10, 11: 20, 39: 40, 41: 100, 999: 1_000}.items()),
        *((round_seconds, *row) for row in {0: 1, 7: 10, 61: 120, 3_601: 7_200, 86_401: 172_800}.items()),
    ],
)
def test_an_axis_ends_at_a_round_number_or_time(round_up, value, top):
    assert round_up(value) == top


def test_rates_are_differences_of_counters_and_unknown_after_a_fall_or_a_gap():
    assert rates([0, 5, 10], [100, 150, 150], 5) == [None, 10, 0]
    assert rates([0, 5, 10], [100, 3, 13], 5) == [None, None, 2]
    assert rates([0, 5, 100], [0, 5, 500], 5) == [None, 1, None]


def test_a_history_gives_jobs_speed_lag_and_morgue_and_nothing_gives_none():
    points = [point(700 + 5 * index, length=index, processed=10 * index, lag=index) for index in range(10)]
    jobs, speed, lag, morgue = charts_of(points, "5m", 750.0)
    assert jobs.description.startswith("queued: at the end 9, lowest 0, highest 9")
    assert speed.description.startswith("processed: at the end 2.0 a second")
    assert lag.marks == ["10 s", "5 s", "0"]
    assert morgue.title == "Morgue"
    assert charts_of([], "5m", 750.0) == []
    times = [mark.striptags().replace("\xa0", " ") for mark in jobs.time_marks]
    assert times == ["00:07:30", "00:10:00", "00:12:30 UTC"]


def test_a_sparkline_of_one_value_is_empty():
    assert "<path" not in sparkline([1], "Memory")
    ET.fromstring(sparkline([1, 2, 3], "Memory <now>"))
