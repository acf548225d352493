"""
Rates: what the script answers, by itself and in random histories beside what is promised of it: no window has more
starts than it may, nobody passes a line, who has a place keeps it, and who was late is not sent to the end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from lowkiq import Lowkiq, Rate, SettingsError
from lowkiq.queue.rates import Answer, Rest, Told, Unit, Unused, rate_call, read_waiting
from lowkiq.rate import parse_rate
from tests import mutants
from tests.queue.model.virtual_clock import VirtualClock

SECOND = 1_000_000
#: Histories of the test, and those within which a mutant must have been found out; steps of each.
HISTORIES, ENOUGH, STEPS = 25, 400, 120
#: Safeguard of rate.lua → what stands in its place, and what is found broken then.
MUTANTS = {
    "a start is not noted": ("line.count, line.last = line.count + 1, time", "line.last = time", "window"),
    "each window has one more": ("(number - LIMIT) / GROUP", "(number - LIMIT - GROUP) / GROUP", "window"),
    "starts are forgotten": ("  line.times, line.count, line.known", "  line.times, line.known", "window"),
    "who comes late is known by when he might have come": (
        "line.latest = math.max(line.latest, time + LATE)", "line.latest = time", "window"
    ),
    "a rest is not kept": ("    line.rests = math.max(line.rests, time)\n".replace("    ", "  ", 1), "", "rests"),
    "a rest is only for those in line": ("math.max(line.rests, line.last) end", "0 end", "rests"),
    "who is late goes to the end": ("    time = place_in_later(line)", "    time = place_in_next(line)", "place"),
    "newcomers pass the line": ("(was_planned or line.next <= now)", "true", "passed"),
    "newcomers pass those who were late": ("or (line.later <= now and (", "or (true and (", "passed"),
    "who asks early is told anew": ("if place and place * 1000000 > now + EARLY then", "if false then", "kept"),
    "what was in vain is given back twice": (
        "if GROUP == 1 and known == us and given < tonumber(count) then", "if GROUP == 1 and known >= us then", "window"
    ),
    "places outlive a start": ("  redis.call('ZREM', P .. 'planned', unpack(started))\n", "", "forgotten"),
}  # fmt: skip


class Queue:
    """The rates of one queue, as nodes ask for them."""

    def __init__(self, app: Lowkiq, rate: Rate) -> None:
        self.app, self.rate = app, rate
        self.prefix = f"{app.settings.namespace}:{{q:rate}}:"

    def ask(self, *units: Unit | str, most: int = 1_000, **more: Any) -> Told:
        asked = [unit if isinstance(unit, Unit) else Unit("", unit) for unit in units]
        told: Told = self.app.caller.run(
            rate_call(self.app.settings.namespace, "q", self.rate, asked, most=most, **more)
        )
        return told

    def words(self, *units: Unit | str, **more: Any) -> list[str]:
        return [answer.word for answer in self.ask(*units, **more).answers]


@pytest.fixture
def clock(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    return VirtualClock(app.redis(), monkeypatch)


@pytest.fixture
def five(app: Lowkiq, clock: VirtualClock) -> Queue:
    """Five a second."""
    return Queue(app, Rate(5))


def ids(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_as_many_start_at_once_as_a_window_may_have_and_the_others_get_places_one_after_the_other(
    five: Queue, clock: VirtualClock
) -> None:
    told = five.ask(*ids(8))
    assert [answer.word for answer in told.answers] == ["start"] * 5 + ["wait"] * 3
    places = [round(answer.at - told.now, 3) for answer in told.answers[5:]]
    assert places == [1.008, 1.211, 1.414]
    clock.step(1.008 * SECOND)
    assert five.words("5", "6", "7", "8") == ["placed", "wait", "wait", "wait"]
    assert five.ask("6").answers[0].at == told.answers[6].at, "a place is kept"


def test_a_long_time_later_all_is_as_it_was_at_first(five: Queue, clock: VirtualClock) -> None:
    five.ask(*ids(8))
    clock.step(3600 * SECOND)
    assert five.words(*ids(5, 100)) == ["start"] * 5


def test_each_key_has_the_rate_for_itself(five: Queue) -> None:
    units = [Unit(key, f"{key}{number}") for key in ("a", "a b", "ä\udcff") for number in range(6)]
    assert five.words(*units) == (["start"] * 5 + ["wait"]) * 3


def test_no_key_and_id_are_taken_for_another_pair(five: Queue, clock: VirtualClock) -> None:
    """The place of ("1", "12") is not that of ("11", "2")."""
    for key, id in (("1", "12"), ("11", "2"), ("", "1:112"), ("1:", "112")):
        units = [Unit(key, other) for other in (*ids(5, 100), id)]
        assert five.words(*units) == ["start"] * 5 + ["wait"], (key, id)


def test_what_may_start_in_a_moment_is_told_so_and_alone_where_jobs_run_in_order(
    five: Queue, clock: VirtualClock
) -> None:
    five.ask(*ids(5))
    clock.step(0.99 * SECOND)
    told = five.ask("a", "b", patience=0.05)
    assert [answer.word for answer in told.answers] == ["start", "ask"]
    assert round(told.answers[0].at - told.now, 3) == 0.018
    told = five.ask("b", "c", "d", patience=0.05, alone=False)
    assert [answer.word for answer in told.answers] == ["start"] * 3


def test_who_may_start_only_so_many_asks_for_the_others_again(five: Queue) -> None:
    assert five.words(*ids(4), most=2) == ["start", "start", "ask", "ask"]
    assert five.words(*ids(2, 2)) == ["start", "start"]


def test_after_an_outage_the_late_ones_come_first_and_nothing_starts_in_a_burst(
    five: Queue, clock: VirtualClock
) -> None:
    five.ask(*ids(30))
    clock.step(3.5 * SECOND)
    came = five.ask(*ids(12, 5))
    assert [answer.word for answer in came.answers] == ["placed"] * 5 + ["wait"] * 7
    newest = five.ask("new").answers[0].at
    last_of_line = max(answer.at for answer in five.ask(*ids(13, 17)).answers)
    assert came.answers[-1].at < last_of_line < newest


def test_a_key_rests_and_the_job_that_met_it_comes_back_first(five: Queue, clock: VirtualClock) -> None:
    five.ask(*ids(7))
    clock.step(0.1 * SECOND)
    five.ask(rests=[Rest(Unit("", "0"), 30.0)])
    assert five.words("new", Unit("other", "new")) == ["wait", "start"]
    clock.step(29.9 * SECOND)
    assert five.words("0", *ids(2, 5)) == ["wait"] * 3
    clock.step(0.2 * SECOND)
    assert five.words("0") == ["placed"]


def test_what_was_granted_in_vain_may_be_granted_again(five: Queue, clock: VirtualClock) -> None:
    told = five.ask(*ids(5))
    clock.step(0.02 * SECOND)
    unused = [Unused("", answer.known) for answer in told.answers[:2]]
    assert five.words("0", "1", "x", unused=unused) == ["start", "start", "wait"]


@pytest.mark.parametrize("limit", [5, 250])
def test_who_may_be_late_is_counted_as_if_he_were(app: Lowkiq, clock: VirtualClock, limit: int) -> None:
    queue = Queue(app, Rate(limit))
    told = queue.ask(*ids(limit + 10), late=0.5)
    assert [answer.word for answer in told.answers].count("start") == queue.rate.most
    unused = [Unused("", answer.known) for answer in told.answers[:2]]
    clock.step(1.2 * SECOND)
    assert queue.words(*ids(8, 1_000), unused=unused).count("start") <= 2
    clock.step(0.4 * SECOND)
    assert "placed" in queue.words(*ids(8, queue.rate.most))


def test_of_a_large_limit_a_key_takes_no_more_memory(app: Lowkiq, clock: VirtualClock) -> None:
    queue = Queue(app, Rate(100_000))
    for at in range(0, 110_000, 1_000):
        queue.ask(*ids(1_000, at))
    assert app.redis().llen(f"{queue.prefix}starts:") <= 102
    words = queue.words(*ids(1_000, 200_000))
    assert set(words) == {"wait"}


@pytest.mark.parametrize("limit", [1, 5, 199, 200, 250, 1_000])
def test_a_window_has_its_limit_and_a_hundredth_more_at_most(app: Lowkiq, clock: VirtualClock, limit: int) -> None:
    queue = Queue(app, Rate(limit))
    words = queue.words(*ids(1_000)) + queue.words(*ids(100, 1_000))
    assert limit <= words.count("start") <= limit * 1.01


def test_another_rate_forgets_places_and_no_start(five: Queue, clock: VirtualClock) -> None:
    five.ask(*ids(50))
    five.rate = Rate(20)
    assert five.words(*ids(50, 100)) == ["start"] * 15 + ["wait"] * 35
    clock.step(1.1 * SECOND)
    assert five.words(*ids(45, 5)).count("start") == 0, "those of the new line come first"


@pytest.mark.parametrize("before, after", [(400, 10), (10, 400), (1_000, 999)])
def test_starts_are_known_by_another_rate(app: Lowkiq, clock: VirtualClock, before: int, after: int) -> None:
    queue = Queue(app, Rate(before))
    queue.ask(*ids(before))
    queue.rate = Rate(after)
    assert queue.words(*ids(1_000, 5_000)).count("start") <= max(after * 1.01 - before, 0)


def test_a_clock_that_is_set_back_holds_nothing_up(five: Queue, clock: VirtualClock) -> None:
    five.ask(*ids(8))
    clock.step(-3600 * SECOND)
    assert five.words("a") == ["wait"], "its window is not over"
    clock.step(10 * SECOND)
    assert five.words("b") == ["start"]


def test_keys_that_nobody_asks_for_go(app: Lowkiq) -> None:
    five = Queue(app, Rate(5, per=60))
    five.ask(*(Unit(str(number), "a") for number in range(10)), *ids(8))
    names = list(five.app.redis().scan_iter(match="*:rate}:*"))
    assert len(names) > 20
    assert all(five.app.redis().ttl(name) > 0 for name in names)


def test_jobs_that_wait_are_counted(five: Queue, clock: VirtualClock) -> None:
    told = five.ask(*ids(8))
    namespace = five.app.settings.namespace
    waiting = read_waiting(five.app.caller, namespace, ["q", "other"], told.now)
    assert {queue: (row.jobs, row.until) for queue, row in waiting.items()} == {"q": (3, told.answers[-1].at)}


@pytest.mark.parametrize("text", ["", "100", 5, "5/", "/5", "0/1", "5/0", "1e3/1", "5/1 ", "-1/1", "5/nan", None, [1]])
def test_a_live_rate_that_can_t_be_one_is_refused(text: object) -> None:
    if text == "100":
        assert parse_rate("q", text) == Rate(100)
        return
    with pytest.raises(SettingsError, match=r"[Rr]ate"):
        parse_rate("q", text)


@pytest.mark.parametrize(
    "arguments",
    [(0,), (True,), (1.5,), (1_000_001,), (1, 0.01), (1, float("nan")), (1, "1"), (1, 1, 5), (1, 1, lambda one: one)],
)
def test_a_rate_that_can_t_be_one_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(SettingsError, match=r"Rate: (limit|per|by) "):
        Rate(*arguments)


# ── random histories ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Line:
    """What is known of a key."""

    #: When jobs have started, or may yet.
    starts: list[int] = field(default_factory=list)
    rests: int = 0
    #: Job → its place, and how many it has had.
    places: dict[str, int] = field(default_factory=dict)
    had: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    #: Jobs of the line, by when they came.
    came: dict[str, int] = field(default_factory=dict)


class History:
    """Nodes that ask, come early, in time and late, lose replies, and give back; far sides that have enough."""

    def __init__(self, queue: Queue, clock: VirtualClock, random: Random) -> None:
        self.queue, self.clock, self.random = queue, clock, random
        self.lines: dict[str, Line] = defaultdict(Line)
        self.numbers = itertools.count()
        self.started: list[Unit] = []
        self.unused: list[Unused] = []
        #: Seconds by which what is granted now may start late.
        self.late = 0.0

    def step(self) -> None:
        random, queue = self.random, self.queue
        self.clock.step(random.choice([0, 1, 1_000, 20_000, 150_000, 400_000, 3_000_000]))
        key = random.choice("ab")
        line = self.lines[key]
        rests: list[Rest] = []
        if random.random() < 0.05:
            rests = [Rest(Unit(key, ""), random.choice([0.5, 5.0]))]
            line.rests = max(line.rests, self.clock.now + round(rests[0].seconds * SECOND))
        asked = self._asked(line)
        patience, alone = random.choice([(0.0, True), (0.05, True), (0.05, False)])
        self.late = random.choice([0.0, 0.0, 0.02, 0.6])
        told = queue.ask(
            *(Unit(key, id) for id in asked), most=random.choice([1, 3, 1_000]), patience=patience, alone=alone,
            late=self.late, rests=rests, started=self.started, unused=self.unused,
        )  # fmt: skip
        for unit in self.started:
            assert not self._has_place(unit), f"forgotten is a place once its job has started: {unit}"
        self.started, self.unused = [], []
        if random.random() < 0.1:
            self._lose(key, asked, told)
        else:
            self._hear(key, asked, told)

    def _asked(self, line: Line) -> list[str]:
        """Jobs that come at their time or late, now and then early; and new ones."""
        now, random = self.clock.now, self.random
        due = [id for id, at in line.places.items() if at <= now or random.random() < 0.1]
        due = [id for id in due if random.random() < 0.8]
        new = [str(next(self.numbers)) for _ in range(random.choice([0, 0, 1, 2, 8]))]
        return [*due, *new]

    def _hear(self, key: str, asked: Sequence[str], told: Told) -> None:
        line, now = self.lines[key], self.clock.now
        is_ahead = any(at > now for at in line.places.values())
        for id, answer in zip(asked, told.answers, strict=True):
            at = round(answer.at * SECOND)
            if answer.word in {"start", "placed"}:
                assert at >= line.rests, f"rests until {line.rests}, starts at {at}"
                assert answer.word == "placed" or not is_ahead, f"passed is a line by {id}"
                self._start(line, Unit(key, id), at, answer)
            elif answer.word == "wait":
                self._wait(line, id, at)
                is_ahead = True

    def _start(self, line: Line, unit: Unit, at: int, answer: Answer) -> None:
        if self.random.random() < 0.1:  # its node is too late
            self.unused.append(Unused(unit.key, answer.known))
            return
        at += self.random.randint(0, round(self.late * SECOND))  # its node is slow
        line.starts.append(at)
        line.places.pop(unit.id, None)
        if answer.word == "placed":
            self.started.append(unit)
        window = round(self.queue.rate.window * SECOND)
        near = sorted(start for start in line.starts if abs(start - at) < window)
        fullest = max(sum(first <= start < first + window for start in near) for first in near if first <= at)
        assert fullest <= self.queue.rate.most, f"window with {fullest} starts"

    def _wait(self, line: Line, id: str, at: int) -> None:
        known = line.places.get(id)
        now, early = self.clock.now, round(self.queue.rate.early * SECOND)
        if known is not None and known > now + early:
            assert at == known, f"kept is a place: {known}, told {at}"
        elif known is not None:
            line.had[id] += 1
            waiting = {other: place for other, place in line.places.items() if place > now}
            late = sum(1 for other in waiting if line.had[other])
            # A line this long ends behind those who were late, unless they rest.
            is_long = len(waiting) - late > self.queue.rate.limit * 4 + late * 4 and line.rests <= now
            assert not is_long or at < max(waiting.values()), f"place at {at}, behind {sorted(waiting.values())}"
        line.places[id] = at

    def _lose(self, key: str, asked: Sequence[str], told: Told) -> None:
        """What is answered is not heard: starts are lost, places are told again."""
        line = self.lines[key]
        for id, answer in zip(asked, told.answers, strict=True):
            if answer.word == "wait" and id not in line.places:
                line.places[id] = round(answer.at * SECOND)
            elif answer.word == "wait":
                self._wait(line, id, round(answer.at * SECOND))

    def _has_place(self, unit: Unit) -> bool:
        member = f"{len(unit.key)}:{unit.key}{unit.id}"
        client, prefix = self.queue.app.redis(), self.queue.prefix
        return any(client.zscore(f"{prefix}{name}", member) is not None for name in ("planned", "delayed"))


def run_history(app: Lowkiq, clock: VirtualClock, seed: int) -> None:
    random = Random(seed)
    if names := list(app.redis().scan_iter(match=f"{app.settings.namespace}:{{q:rate}}:*")):
        app.redis().unlink(*names)
    clock.set(1_000_000 * SECOND)
    history = History(Queue(app, random.choice([Rate(1), Rate(5), Rate(7, per=2)])), clock, random)
    for step in range(STEPS):
        if step == STEPS // 2 and random.random() < 0.3:  # somebody sets another rate
            history.queue.rate = Rate(4, per=random.choice([1, 2]))
            for line in history.lines.values():
                line.places.clear()
                line.had.clear()
        history.step()


def test_random_histories_keep_what_is_promised(app: Lowkiq, clock: VirtualClock) -> None:
    for seed in range(HISTORIES):
        run_history(app, clock, seed)


#: The first history that finds a mutant out, of those that few do.
FIRST = {
    "starts are forgotten": 66, "newcomers pass those who were late": 38, "what was in vain is given back twice": 5,
    "who comes late is known by when he might have come": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_out(app: Lowkiq, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    safeguard, instead, breaks = MUTANTS[name]
    mutants.replace("rate.lua", safeguard, instead, monkeypatch)
    found = []
    for seed in (FIRST.get(name, 0), *range(ENOUGH)):
        try:
            run_history(app, clock, seed)
        except AssertionError as error:
            found.append(str(error))
            if found[-1].startswith(breaks):
                return
    pytest.fail(f"not found out in {ENOUGH} histories, but: {found[:3]}")
