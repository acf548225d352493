"""Search: which jobs an operator means, and a walk over them in bounded steps."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.admin.jobs.reader import error_text
from lowkiq.admin.jobs.search import STEP, Match, Place, Search, is_glob
from lowkiq.failure import GROUP_CHARS, group_of
from lowkiq.job import shard_of
from lowkiq.queue.call import SHARDS_A_CALL
from tests.admin.conftest import fail, push
from tests.queue.shard_driver import PAST, ShardDriver

SHARDS = 5
#: More than Redis keeps in a small encoding, in each shard.
MANY = 4_000


@pytest.fixture
def shards(app):
    return [ShardDriver(app, index=index, shards_count=SHARDS) for index in range(SHARDS)]


@pytest.fixture
def work(app):
    return app.worker(queue_name="q", shards_count=SHARDS)(lambda _: None)


@pytest.fixture
def matches(app):
    return Search(app.caller, app.shards("q", SHARDS), str)


def found(steps):
    return [id.decode() for step in steps for id, _ in step.found]


def test_all_jobs_of_a_view_are_met_once(work, matches):
    push(work, range(MANY))
    met = Counter(found(matches.steps(Match("due"))))
    assert met == Counter(str(n) for n in range(MANY))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a-*", {"a-1", "a-2", "a-30"}),
        ("a-?", {"a-1", "a-2"}),
        ("*-[12]", {"a-1", "a-2", "b-1"}),
        ("a-1", {"a-1"}),
        ("x\\*y", {"x*y"}),
        ("x*y", {"x*y", "xzy"}),
        ("*", {"a-1", "a-2", "a-30", "b-1", "x*y", "xzy", "Ünïcode", "line\nbreak"}),
        ("Ün*", {"Ünïcode"}),
        ("line?break", {"line\nbreak"}),
        ("A-*", set()),
        ("[", set()),
        ("*" * 200 + "-1", {"a-1", "b-1"}),
    ],
)
def test_a_pattern_is_a_glob_of_redis(work, matches, pattern, expected):
    push(work, ["a-1", "a-2", "a-30", "b-1", "x*y", "xzy", "Ünïcode", "line\nbreak"])
    assert set(found(matches.steps(Match("due", pattern)))) == expected


def test_a_walk_is_cut_short_and_taken_up_again_at_any_step(work, matches):
    push(work, range(MANY))
    met, place = [], Place(0, 0)
    while place is not None:
        step = next(matches.steps(Match("due", "*7*"), place))
        met += found([step])
        assert len(met) < 2 * MANY, "it does not come to an end"
        place = step.next
    assert Counter(met) == Counter(str(n) for n in range(MANY) if "7" in str(n))


def test_a_step_is_bounded_and_tells_how_many_were_looked_at(work, matches):
    push(work, range(20_000))
    steps = list(matches.steps(Match("due")))
    # Redis finishes a bucket, so a step may give a few more than were asked for.
    assert max(len(step.found) for step in steps) < 2 * STEP
    assert {step.seen for step in steps} == {STEP}
    assert sum(step.seen for step in steps) == pytest.approx(20_000, rel=0.5)


def test_a_step_of_a_small_shard_says_that_little_was_looked_at(shards, matches):
    shards[2].push_all(("a",), ("b",), ("c",))
    (step,) = matches.steps(Match("due", "b"))
    assert (step.shard.index, found([step]), step.seen, step.next) == (2, ["b"], 3, None)


def test_found_ids_have_their_scores(shards, matches):
    shards[0].push_all(("a", b"p", 1.0, PAST), ("b", b"p", 1.0, PAST + 0.25))
    (step,) = matches.steps(Match("due"))
    assert sorted(step.found) == [(b"a", PAST), (b"b", PAST + 0.25)]


def test_empty_shards_take_no_step_and_the_last_step_says_so(shards, matches):
    shards[1].push("a")
    assert [step.next for step in matches.steps(Match("due"))] == [None]
    shards[3].push("b")
    steps = list(matches.steps(Match("due")))
    assert [step.shard.index for step in steps] == [1, 3]
    assert [step.shard.index for step in matches.steps(Match("due"), steps[0].next)] == [3]


def test_nothing_is_no_step(matches):
    for view in ("due", "retries", "morgue"):
        assert list(matches.steps(Match(view))) == []
        assert matches.lengths(view) == [0] * SHARDS


@pytest.mark.parametrize("place", [Place(SHARDS, 0), Place(999_999_999, 0), Place(SHARDS, 17)])
def test_a_place_behind_the_last_shard_is_the_end(shards, matches, place):
    shards[0].push("a")
    assert list(matches.steps(Match("due"), place)) == []


def test_a_place_in_a_shard_that_was_emptied_meanwhile_goes_on_with_the_next(shards, matches):
    shards[4].push("a")
    assert found(matches.steps(Match("due"), Place(1, 12345))) == ["a"]
    assert found(matches.steps(Match("due"), Place(1, 0))) == ["a"]


def test_what_is_there_all_the_time_is_met_while_others_come_and_go(work, matches, shards):
    """Redis resizes its tables meanwhile, both ways."""
    staying = [f"stays-{n}" for n in range(3000)]
    push(work, [*staying, *(f"goes-{n}" for n in range(12_000))])
    met = set()
    for number, step in enumerate(matches.steps(Match("due", "stays-*"))):
        met.update(found([step]))
        work.actions.delete(f"goes-{n}" for n in range(number * 500, number * 500 + 500))
        push(work, [f"comes-{number}-{n}" for n in range(20)])
    assert met == set(staying)


def test_lengths_are_those_of_each_shard(work, matches):
    ids = [str(n) for n in range(100)]
    push(work, ids)
    work.actions.bury(ids[:30])
    per_shard = Counter(shard_of(id.encode(), SHARDS) for id in ids[30:])
    assert matches.lengths("due") == [per_shard[index] for index in range(SHARDS)]
    assert matches.lengths("retries") == [0] * SHARDS
    assert sum(matches.lengths("morgue")) == 30


def test_lengths_of_more_shards_than_a_call_takes_are_in_their_order(app):
    count = 2 * SHARDS_A_CALL + 1
    work = app.worker(queue_name="many", shards_count=count)(lambda _: None)
    push(work, range(500))
    expected = Counter(shard_of(str(n).encode(), count) for n in range(500))
    lengths = Search(app.caller, app.shards("many", count), str).lengths("due")
    assert lengths == [expected[index] for index in range(count)]


def test_retries_are_those_that_failed(shards, matches):
    fail(shards[0], a="e", b="e")
    shards[0].push_all(("fresh",), ("c",))
    assert set(found(matches.steps(Match("retries")))) == {"a", "b"}
    assert set(found(matches.steps(Match("due")))) == {"a", "b", "c", "fresh"}
    assert set(found(matches.steps(Match("due", error="")))) == {"c", "fresh"}, "the group of jobs without an error"


def test_a_group_of_errors_is_found_in_any_view(shards, matches):
    fail(shards[0], a="timeout after 5 s", b="timeout after 17 s", c="no such file")
    shards[0].push("fresh")
    fail(shards[3], d="timeout after 1 s")
    group = group_of("timeout after 99 s")
    for view in ("due", "retries"):
        assert set(found(matches.steps(Match(view, error=group)))) == {"a", "b", "d"}
        assert set(found(matches.steps(Match(view, "[ac]", group)))) == {"a"}
    shards[0].actions.bury(["a", "c"])
    assert found(matches.steps(Match("morgue", error=group))) == ["a"]
    assert set(found(matches.steps(Match("retries", error=group)))) == {"b", "d"}


def test_errors_of_ids_are_in_their_order_and_none_where_there_is_none(shards, matches):
    fail(shards[0], a="one", b="two")
    fail(shards[3], c="three")
    shards[0].push("fresh")
    asked = [
        (shards[0].shard, [b"b", b"ghost", b"fresh", b"a"]),
        (shards[1].shard, []),
        (shards[3].shard, [b"c", b"a"]),
    ]
    assert matches.errors_of("due", asked) == [["two", None, None, "one"], [], ["three", None]]
    assert matches.errors_of("due", []) == []
    assert matches.errors_of("due", [(shards[0].shard, [])]) == [[]]


def test_errors_that_cannot_be_loaded_are_told_as_they_are_stored(app, shards):
    """So are Lowkiq's own, such as that a job was buried by hand: they are never dumped."""

    def load(text):
        raise ValueError(text)

    fail(shards[0], a="E5")
    matches = Search(app.caller, app.shards("q", SHARDS), load)
    assert found(matches.steps(Match("retries", error="E#"))) == ["a"]
    loads = Search(app.caller, app.shards("q", SHARDS), str.lower)
    assert found(loads.steps(Match("retries", error="e#"))) == ["a"], "errors are grouped as they are told"
    assert error_text(b"caf\xc3\xa9 \xff", load) == "café \ufffd"
    assert error_text(b"caf\xc3\xa9 \xff", str.upper) == "CAFÉ \ufffd"


def test_a_walk_without_redis_is_an_error_and_not_an_end(own_redis_server, make_app):
    app = make_app(redis_url=own_redis_server.url, pool_timeout=0.1)
    work = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    push(work, range(MANY))
    steps = Search(app.caller, app.shards("q", 1), str).steps(Match("due"))
    next(steps)
    own_redis_server.stop()
    with pytest.raises(redis.ConnectionError):
        list(steps)


def test_all_are_meant_only_when_nothing_is_said():
    assert Match("due").is_all and Match("morgue").is_all
    some = [Match("due", "*"), Match("due", ""), Match("due", error=""), Match("due", error="x")]
    assert not any(match.is_all for match in some)


@pytest.mark.parametrize(
    ("error", "group"),
    [
        (None, ""),
        ("", ""),
        ("  \n \t\n", ""),
        ("boom", "boom"),
        ("user 17 has 3 cats", "user # has # cats"),
        ("<Order at 0x7f16f6912660>", "<Order at #>"),
        ("1.5 s, 1,234 rows of 10.0.0.1:5432", "# s, # rows of #"),
        ("order 0123abcd-12ab-34cd-56ef-0123456789ab", "order #"),
        ("blob 9fceb02d0ae598e9 of order_deadbeef", "blob # of order_#"),
        ("KeyError: 'vat'", "KeyError: '…'"),
        ("""no b'a\\'b' and "x y", can't, don't""", "no '…' and '…', can't, don't"),
        ("Expected `int`, got `str` - at `$.order_id`", "Expected `int`, got `str` - at `$.order_id`"),
        ("first\nsecond 2", "first"),
        ("\n\n  first  \nsecond", "first"),
        ("first\r\nsecond", "first"),
        ('Traceback (most recent call last):\n  File "a.py", line 7\n    f()\nE: no 5\n\n', "E: no #"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("Tracebacks are long\nindeed", "Tracebacks are long"),
        ("x" * 1000, "x" * GROUP_CHARS),
        ("x" * (GROUP_CHARS - 2) + "12345", "x" * (GROUP_CHARS - 2) + "#"),
        ("é" * 1000, "é" * GROUP_CHARS),
    ],
)
def test_errors_of_one_kind_are_one_group(error, group):
    assert group_of(error) == group


@given(st.text(max_size=400))
def test_a_group_is_one_short_line_without_numbers_and_its_own_group(error):
    group = group_of(error)
    assert len(group) <= GROUP_CHARS
    assert not re.search(r"\d", group)
    assert len(group.splitlines()) <= 1
    assert group_of(group).strip() == group.strip()


def test_a_glob_is_what_redis_takes_for_more_than_its_text():
    assert all(map(is_glob, ["a*", "?", "[a", "a\\b"]))
    assert not any(map(is_glob, ["", "a", "a-1:b]", "^a", "a.b+c{2}$"]))
