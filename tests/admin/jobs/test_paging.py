"""Order: the pages of an index of many shards are those of one sorted list."""

from __future__ import annotations

import itertools
import math

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkiq.admin.jobs.paging import Cursor, read_in_order
from lowkiq.admin.jobs.previews import Previews
from lowkiq.queue.call import SHARDS_A_CALL
from lowkiq.queue.shard import Shard

_queues = itertools.count()


class Index:
    """An index of some shards, written by hand, beside the rows that it should give."""

    def __init__(self, app, shards_count):
        self.caller, self.redis = app.caller, app.redis()
        self.shards = app.shards(f"q{next(_queues)}", shards_count)
        self.rows, self.parked = [], []

    def add(self, shard, scores_by_id):
        self.redis.zadd(f"{self.shards[shard].prefix}due", scores_by_id)
        self.rows += [(score, shard, id.encode()) for id, score in scores_by_id.items()]

    def park(self, shard, scores_by_id):
        """Ids that wait for their own run, as claims put them aside."""
        prefix = self.shards[shard].prefix
        self.redis.zadd(f"{prefix}due", dict.fromkeys(scores_by_id, math.inf))
        self.redis.hset(f"{prefix}behind", mapping=scores_by_id)
        self.parked += [(score, shard, id.encode()) for id, score in scores_by_id.items()]

    def sorted(self, *, reverse=False, low=-math.inf, high=math.inf):
        """By score, then shard, then id, with those that wait behind; reversed, the shards are still in order."""
        rows = sorted(row for row in self.rows if low <= row[0] <= high)
        if reverse:
            rows.sort(key=lambda row: row[2], reverse=True)
        rows += sorted((row for row in self.parked if low <= row[0] <= high), key=lambda row: row[2])
        rows.sort(key=lambda row: (-row[0] if reverse else row[0], row[1]))
        return [(shard, id) for _, shard, id in rows]

    def read(self, limit, after=None, **options):
        page, following = read_in_order(self.caller, self.shards, "due", after=after, limit=limit, **options)
        return [(shard.index, id) for shard, id in page], following

    def pages(self, limit, **options):
        """All of them. Each cursor goes through its text, as it does in a URL."""
        pages, after = [], None
        while True:
            page, following = self.read(limit, after, **options)
            pages.append(page)
            assert len(pages) <= len(self.rows) + len(self.parked) + 1, "they do not come to an end"
            if following is None:
                return pages
            assert len(page) == limit
            after = Cursor.parse(following.text)
            assert after == following


def flat(pages):
    return [row for page in pages for row in page]


@pytest.fixture
def index_of(app):
    return lambda shards_count: Index(app, shards_count)


SCORES = st.one_of(
    st.sampled_from([0.0, 1.0, 1.5, -3.0, 1e22, 1_700_000_000.123456, 0.1 + 0.2, 1e-300]),
    st.integers(0, 3).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), SCORES), max_size=60),
    limit=st.integers(1, 70),
    reverse=st.booleans(),
    bounds=st.one_of(st.none(), st.tuples(st.floats(-5, 5), st.floats(-5, 5)).map(sorted), st.integers(0, 3)),
)
def test_pages_together_are_the_sorted_list(app, rows, limit, reverse, bounds):
    index = Index(app, 5)
    for number, (shard, score) in enumerate(rows):
        index.add(shard, {f"id-{number}": score})
    low, high = (-math.inf, math.inf) if bounds is None else (bounds, bounds) if isinstance(bounds, int) else bounds
    options = {} if bounds is None else {"bounds": (low, high)}
    pages = index.pages(limit, reverse=reverse, **options)
    assert flat(pages) == index.sorted(reverse=reverse, low=low, high=high)
    assert all(len(page) == limit for page in pages[:-1])


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.booleans()), max_size=40),
    limit=st.integers(1, 50),
    reverse=st.booleans(),
    bounds=st.one_of(st.none(), st.tuples(st.integers(-2, 2), st.integers(-2, 2)).map(sorted)),
)
def test_those_that_wait_for_their_own_run_have_their_places_among_the_others(app, rows, limit, reverse, bounds):
    index = Index(app, 3)
    for number, (shard, score, waits) in enumerate(rows):
        (index.park if waits else index.add)(shard, {f"id-{number}": float(score)})
    low, high = bounds or (-math.inf, math.inf)
    options = {} if bounds is None else {"bounds": (low, high)}
    pages = index.pages(limit, reverse=reverse, **options)
    assert flat(pages) == index.sorted(reverse=reverse, low=low, high=high)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 1000, 2999, 3000, 3001])
def test_thousands_of_equal_scores_in_one_shard_are_met_once_each(index_of, limit, reverse):
    index = index_of(2)
    index.add(1, {f"id-{number:04}": 5.0 for number in range(200 if limit == 1 else 3000)})
    assert flat(index.pages(limit, reverse=reverse)) == index.sorted(reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [33, 250, 1000])
def test_thousands_of_equal_scores_over_many_shards_are_met_once_each(index_of, limit, reverse):
    index = index_of(20)
    for shard in range(20):
        index.add(shard, {f"id-{shard}-{number}": 5.0 for number in range(150)})
        index.add(shard, {f"before-{shard}": 4.0 + shard / 100, f"after-{shard}": 6.0 - shard / 100})
    assert flat(index.pages(limit, reverse=reverse)) == index.sorted(reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_more_shards_than_are_read_at_once_are_one_list(index_of, reverse):
    count = SHARDS_A_CALL * 2 + 3
    index = index_of(count)
    for shard in range(count):
        index.add(shard, {"id": float((shard * 7919) % 101)})
    index.add(count - 1, {"first": -1.0, "last": 1000.0})
    assert flat(index.pages(100, reverse=reverse)) == index.sorted(reverse=reverse)


def test_a_page_that_holds_all_is_the_last(index_of):
    index = index_of(3)
    assert index.pages(10) == [[]]
    for number in range(10):
        index.add(number % 3, {f"id-{number}": 1.0})
    assert index.read(10)[1] is None
    assert index.read(9)[1] is not None


def test_ids_of_a_score_are_in_the_order_of_their_bytes(index_of):
    index = index_of(1)
    index.add(0, dict.fromkeys(["b", "a", "é", "Z", "a:b", "\x00", "a\n"], 1.0))
    assert [id for _, id in flat(index.pages(2))] == sorted(id for _, _, id in index.rows)


def test_infinite_scores_of_strangers_are_in_order_too(index_of):
    index = index_of(2)
    index.add(0, {"low": -math.inf, "high": math.inf, "zero": 0.0})
    index.add(1, {"low": -math.inf, "high": math.inf})
    assert flat(index.pages(1)) == index.sorted()
    assert flat(index.pages(1, reverse=True)) == index.sorted(reverse=True)


@pytest.mark.parametrize("reverse", [False, True])
def test_only_shards_that_may_be_on_the_page_are_read(index_of, monkeypatch, reverse):
    index = index_of(100)
    for shard in range(100):
        index.add(shard, {f"id-{number}": float(shard * 10 + number) for number in range(20)})
    sent = []
    read = index.caller.read
    monkeypatch.setattr(index.caller, "read", lambda some, otherwise: sent.extend(some) or read(some, otherwise))
    index.read(5, reverse=reverse)
    best = range(99, 93, -1) if reverse else range(6)
    # The n-th best can have at most all but n - 1 of the rows.
    expected = [(f"{index.shards[number].prefix}due", 6 - rank) for rank, number in enumerate(best)]
    assert [(command[1], command[-1]) for command in sent] == expected


@pytest.mark.parametrize("equal", [1, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_jobs_that_were_performed_meanwhile_do_not_hide_those_of_other_scores(index_of, reverse, equal):
    index = index_of(3)
    for number in range(60):
        index.add(number // equal % 3, {f"id-{number:02}": float(number // equal)})
    expected, after, met = index.sorted(reverse=reverse), None, []
    while True:
        page, after = index.read(10, after, reverse=reverse)
        met += page
        if after is None:
            break
        for shard, id in page:
            index.redis.zrem(f"{index.shards[shard].prefix}due", id)
    assert met == expected


HOSTILE = [
    "nan:0:1", "NaN:0:1", "-nan:0:1", "infinity:0:1", "1_0:0:1", "0x1p3:0:1", "1e:0:1", "e:0:1", "--1:0:1", "+-1:0:1",
    "1.5.5:0:1", ":0:1", "1::1", "1:0:", "1:0", "1", ":", "::", "1:0:1:1", "1:-1:1", "1:0:-1", "1:1.0:1", "1:0:1e3",
    "1:9999999999:1", "1:0:1000000000000000", "1" * 41 + ":0:1", "1:0:1\n", "\n1:0:1", " 1:0:1", "1 :0:1", "1:0:1\x00",
    "\x00", "1\x00:0:1", "(1:0:1", "[1:0:1", "-inf", "\u0661:0:1", "1:\u0663:1", "1:0:²", "é", "\ud800", "💥",
    "0:0", "0", "x" * 100_000, "1:0:1;DROP", "../../etc", "%s", "None", "{}", "+inf LIMIT 0 1:0:1",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_what_is_no_cursor_is_refused_with_a_way_out(text):
    with pytest.raises(ValueError, match="is no cursor: take the one that the last page gave") as caught:
        Cursor.parse(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("view", ["due", "retries", "morgue"])
def test_views_refuse_them_too(app, view):
    previews = Previews(app.caller, [Shard(app.settings.namespace, "q", 0, 1)], load_error=str, max_id_bytes=512)
    for text in HOSTILE:
        with pytest.raises(ValueError, match="take the one that the last page gave"):
            previews.page(view, cursor=text)


UNGIVEN = [
    "inf:0:1", "-inf:0:1", "1e400:0:1", "-1e400:5:2", "5.0:999999999:999999999999", "-0.0:0:0", "1e-400:1:1",
    "5.0:1:1", "5.0:0:1", "-5.0:0:999999999999", "1.7976931348623157e+308:1:1",
]  # fmt: skip


@pytest.mark.parametrize("text", UNGIVEN)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_cursor_that_nobody_gave_gives_rows_of_the_list_or_none(index_of, text, reverse):
    index = index_of(2)
    for number in range(20):
        index.add(number % 2, {f"id-{number}": float(number)})
    rows, _ = index.read(7, Cursor.parse(text), reverse=reverse)
    in_order = index.sorted(reverse=reverse)
    assert rows == [] or rows == in_order[in_order.index(rows[0]) :][: len(rows)]


@given(st.text(max_size=60))
def test_any_text_is_a_cursor_or_refused(text):
    try:
        cursor = Cursor.parse(text)
    except ValueError:
        return
    assert Cursor.parse(cursor.text) == cursor


@given(st.builds(Cursor, st.floats(allow_nan=False), st.integers(0, 999_999_999), st.integers(0, 999_999_999_999)))
def test_a_cursor_survives_its_text(cursor):
    assert Cursor.parse(cursor.text) == cursor


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("score", [4.0, 6.0, math.nextafter(5, 6), -math.inf, math.inf])
def test_a_cursor_from_outside_the_bounds_is_refused_with_a_way_out(index_of, reverse, score):
    """It was given for a list with others: 5 failures were asked for, and it would show those with 9."""
    index = index_of(3)
    index.add(1, {f"id-{number:02}": float(number // 3) for number in range(30)})
    with pytest.raises(ValueError, match="is no cursor of this list: take the one that its last page gave"):
        index.read(100, Cursor(score, 1, 1), bounds=(5, 5), reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_cursor_within_the_bounds_stays_within_them(index_of, reverse):
    index = index_of(3)
    for number in range(30):
        index.add(number % 3, {f"id-{number:02}": float(number // 3)})
    expected = index.sorted(low=5, high=5)
    for shard in range(3):
        assert index.read(100, Cursor(5.0, shard, 1), bounds=(5, 5), reverse=reverse)[0] == expected[shard + 1 :]


@pytest.mark.parametrize("protocol", [2, 3])
def test_it_works_with_a_client_of_the_users_making(make_app, redis_server, protocol):
    app = make_app(redis=lambda: redis.Redis(unix_socket_path=str(redis_server.socket), protocol=protocol))
    index = Index(app, 2)
    index.add(0, {"a": 1.25, "c": 3.0})
    index.add(1, {"b": 2.0, "d": 1e22})
    assert flat(index.pages(1)) == index.sorted()
