"""The one list: each kind of alert appears, names its next step, and goes; causes stand for their consequences."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest

from lowkiq import Lowkiq
from lowkiq.admin.alerts.alert import KINDS, Alert, Thresholds
from lowkiq.admin.alerts.emptied import Loss
from lowkiq.admin.alerts.look import Look, alerts_of, shown
from lowkiq.admin.alerts.redis import alerts_of_redis
from lowkiq.admin.alerts.situation import Line, Situation
from lowkiq.admin.beats.health import NodeHealth, ThreadHealth
from lowkiq.admin.beats.nodes import judge
from lowkiq.admin.metrics import ShardMetrics, by_queue
from lowkiq.admin.past.history import Point, read_milestones
from lowkiq.admin.pauses import Hold, Pause
from lowkiq.admin.resharding import Resharding
from lowkiq.admin.why.reasons import Reason
from lowkiq.queue.keys import history as history_key
from lowkiq.queue.unreadable import Unreadable

AT = 1_000_000.0
IDLE = ThreadHealth(name="idle")
RESHARD = Resharding(
    before=5, shards=48, moved=37, left=63, is_over=False, began_at=AT - 150, moved_at=AT - 120, seconds=150.0
)


def busy(seconds: float, **facts: Any) -> ThreadHealth:
    return ThreadHealth(name="t", queue="q", shard=0, ids=["17"], jobs=1, seconds=seconds, **facts)


def node(**facts: Any) -> NodeHealth:
    known: dict[str, Any] = {
        "node": "host:1:abc", "boot_id": "b", "host": "host", "pid": 1, "supervisor_pid": 7, "node_number": 0,
        "number_of_nodes": 1, "slot": 0, "state": "ready", "started_at": 1.0, "beat_at": 2.0, "version": "1",
        "owned": {"q": [0]}, "waited_for": {}, "threads": [IDLE], "processed": 0, "failed": 0, "rss": 1,
        "cpu_percent": 0.0, "redis_round_trip": None, "restarts": 0, "last_exit": None, "queues": ["q"],
    }  # fmt: skip
    return NodeHealth(**known | facts)


def shard(**facts: Any) -> ShardMetrics:
    known: dict[str, Any] = {
        "queue": "q", "shard": 0, "length": 0, "retries": 0, "waiting": 0, "busy": 0, "claims": 0, "morgue_length": 0,
        "due_in": None, "processed": 0, "failed": 0, "pushed": 0, "merged": 0, "owner": "host:1:abc",
        "lease_rest": 9.0, "epoch": 1,
    }  # fmt: skip
    return ShardMetrics(**known | facts)


def point(ago: float, **facts: Any) -> Point:
    known = dict.fromkeys(Point.__struct_fields__, 0) | {"at": AT - ago, "lag": 0.0}
    return Point(**known | facts)


def situation(
    *nodes: NodeHealth, shards: tuple[ShardMetrics, ...] = (), unreadable: tuple[Unreadable, ...] = (), **facts: Any
) -> Situation:
    rows = [*shards] or [shard()]
    queues = by_queue({row.queue: None for row in rows}, rows)
    facts = {"queues": queues} | facts
    return Situation(nodes=judge([*nodes], rows, unreadable), shards=rows, at=AT, **facts)


def listed(*nodes: NodeHealth, **facts: Any) -> list[Alert]:
    now = situation(*nodes, **facts)
    return shown(alerts_of(now), now)


def kinds(*nodes: NodeHealth, **facts: Any) -> list[str]:
    return [alert.kind for alert in listed(*nodes, **facts)]


def notices(text: str) -> NodeHealth:
    return node(notices=[text])


LATE = shard(length=3, due_in=-157.0)
STUCK = shard(length=3, due_in=-157.0, busy=1)
HALF = shard(processed=10, failed=10)
BURIED = shard(morgue_length=70)
FAR = node(node="far:2:x", host="far", supervisor_pid=8, owned={"q": [0, 1]}, is_elastic=True, beat_age=40.0)
PAUSE = Pause(AT - 400, "ann", "we count")
PAUSED = shard(length=3, due_in=-157.0, busy=1, pause=PAUSE, is_at_rest=True)


def large(beats: int) -> NodeHealth:
    return node(rss=296 << 20, rss_limit=150 << 20, rss_history=[290 << 20] * beats)


RETIRES = node(node="host:2:x", pid=2, state="retiring", threads=[busy(40.0)], owned={})
LOSS = Loss(AT - 43, 4_680, 1_480, 2, ["mail"], AT - 40)

HELD, GATHERS = Hold(AT - 7_200, "ann", "a customer called", id="17"), Hold(AT - 60, id="42")
#: Kind → what makes it, what ends it, its severity, since when it is known without a note, and words of what it says.
TABLE: dict[str, tuple[dict[str, Any], dict[str, Any], str, float | None, tuple[str, ...]]] = {
    "emptied": ({"nodes": [node()], "loss": LOSS}, {"loss": None}, "bad", AT - 40,
                ("Redis came back empty at 1970-01-12 13:46:00 UTC: 4,680 jobs queued, 1,480 dead before, as of 3.0 s",
                 "queue mail was paused, and runs now; 2 ids were held", "then acknowledge it")),
    "no nodes": ({"nodes": [], "shards": (shard(lease_rest=0.0, due_in=-90.0),), "gone": [AT - 50, AT - 40]}, {},
                 "bad", AT - 40, ("nothing runs, and 1 queue has jobs due", "1 min 30 s late", "Start nodes")),
    "missing": ({"nodes": [node(number_of_nodes=2)], "gone": [AT - 900, AT - 31]}, {}, "bad", AT - 31,
                ("Node 1 of 2 is missing: others stand in for it once", "Start it")),
    "late": ({"nodes": [node(beat_age=14.0)], "shards": (shard(lease_rest=4.2),)}, {"nodes": [node(beat_age=9.0)]},
             "bad", AT - 14, ("Node 0 on host", "its 1 shard moves on when its lease ends, in 4.2 s", "its log")),
    "vanished": ({"nodes": [node(is_elastic=True)], "vanished": [FAR]}, {"vanished": []}, "warn", AT - 40,
                 ("far went away without saying goodbye at", "with 1 node; its 2 shards went to node 0 on host (1),",
                  "and 1 to nobody yet", "this ends by itself after 15 min")),
    "crash loop": ({"nodes": [notices("crash loop: node 1/2 can't start since 12:03 UTC, 3 times")]}, {}, "bad", None,
                   ("On host, node 1/2 can't start since", "mend the cause")),
    "roll stopped": ({"nodes": [notices("roll stopped: a rolling restart has stopped: no disk")]}, {}, "warn", None,
                     ("a rolling restart has stopped", "go on with the rest")),
    "unowned": ({"nodes": [node()], "shards": (shard(lease_rest=0.0, length=1, due_in=-65.0),)}, {}, "bad", None,
                ("Shard 0 of q has jobs due and no node", "numbers that are missing")),
    "refused": ({"nodes": [node(refused={"q": "another shards_count"})]}, {}, "bad", None,
                ("1 node leaves queue q alone", "once that is mended")),
    "trouble": ({"nodes": [node(redis_error="ResponseError: unknown command")]}, {"nodes": [node()]}, "bad", None,
                ("Node 0 on host beats, but can't use Redis: ResponseError: unknown command", "redis_trouble")),
    "event loop": ({"nodes": [node(tasks=2, loop_lag=3.0, beat_age=1.0)]}, {}, "bad", AT - 4, ("its 2 tasks stand",)),
    "late queue": ({"nodes": [node(threads=[busy(1.0)])], "shards": (LATE,)},
                   {"shards": (shard(length=3, due_in=-59.0),)}, "warn", AT - 97,
                   ("Queue q is 2 min 37 s late: 3 jobs queued, 0 in hand; the only thread of its nodes is busy",
                    "Start more nodes")),
    "failing queue": ({"nodes": [node()], "shards": (HALF,), "past": {"q": [point(290)]}},
                      {"shards": (shard(processed=11, failed=9),)}, "bad", None,
                      ("50 % of the tries of q have failed in the last 4 min 50 s: 10 of 20", "See their errors")),
    "blocked": ({"nodes": [node()], "shards": (shard(length=3, blocked=2, blocked_since=AT - 90),)}, {}, "bad", AT - 90,
                ("2 blocked jobs wait in q, the first for 1 min 30 s", "retry them, skip their oldest")),
    "reshard": ({"nodes": [node()], "reshards": {"q": RESHARD}}, {"reshards": {}}, "bad", AT - 60,
                ("The reshard of q from 5 to 48 shards is at 37 %, and has moved nothing for 2 min",
                 "A job that runs keeps a shard")),
    "growing morgue": ({"nodes": [node()], "shards": (BURIED,),
                        "past": {"q": [point(3590), point(590, morgue_length=50)]}},
                       {"past": {"q": [point(3590), point(590, morgue_length=70)]}}, "bad", None,
                       ("70 jobs of q went to the morgue in the last 59 min", "it still grows: 70", "revive")),
    "paused": ({"nodes": [node()], "shards": (PAUSED,)}, {}, "warn", AT - 400,
               ("Queue q is paused by ann: we count; 3 jobs queued; 1 still in hand", "lowkiq resume q")),
    "held": ({"nodes": [node()], "holds": {"q": [(HELD, 0), (GATHERS, 525)]}},
             {"holds": {"q": [(msgspec.structs.replace(HELD, since=AT - 3_500), 100)]}}, "warn", None,
             ("2 ids of q are held: 17 for 2 h by ann: a customer called; 525 payloads wait in 42",
              "lowkiq release q ID")),
    "unsent": ({"nodes": [node()], "shards": (shard(unsent_since=AT - 50),)}, {"shards": (shard(unsent_since=AT - 9),)},
               "bad", AT - 20, ("What follows from jobs of q has waited for 50 s", "`letters_wait`")),
    "recurring": ({"nodes": [node()], "shards": (shard(fires_at=AT - 90),)}, {"shards": (shard(fires_at=AT + 5),)},
                  "bad", AT - 60, ("A recurring job of q was to fire 1 min 30 s ago", "`recurring_failed`")),
    "dependent": ({"nodes": [node()], "shards": (shard(dependent=3, dependent_since=AT - 7_200),)},
                  {"shards": (shard(dependent=3, dependent_since=AT - 60),)}, "warn", AT - 3_600,
                  ("3 jobs of q wait for others, the first for 2 h", "in the morgue")),
    "unreadable": ({"nodes": [node()], "unreadable": (Unreadable("k", "junk", "UNLINK k"),)}, {}, "bad", None,
                   ("under k", "UNLINK k")),
    "doubled": ({"nodes": [node(), node(node="far:2:x", host="far", pid=2, supervisor_pid=8, owned={})]}, {}, "warn",
                None, ("process 2 of supervisor 8 on far stands by, process 1 of supervisor 7 on host has 1 shard",
                       "Stop process 2 of supervisor 8 on far")),
    "recycling": ({"nodes": [notices("recycling: node 0/1 was cut off")]}, {}, "warn", None, ("was cut off",)),
    "memory": ({"nodes": [large(12), RETIRES]}, {"nodes": [large(11), RETIRES]}, "warn", None,
               ("Node 0 on host holds 296 of 150 MiB of memory; it is replaced once node 0 has ended, which",
                "17 of q holds up, for 40 s so far", "more memory")),
    "rate": ({"nodes": [node()], "lines": {"q": Line(2_770, AT + 282, is_growing=True)}},
             {"lines": {"q": Line(2_770, AT + 282, is_growing=False)}}, "warn", None,
             ("2,770 jobs of q wait for its rate, the last for another 4 min 42 s, and the line grows", "Raise")),
    "supervisor": ({"nodes": [notices("an older peer's sentence")]}, {}, "warn", None, ("an older peer's sentence",)),
    "runs on": ({"nodes": [node(threads=[busy(90.0, to_stop_seconds=61.0)])]}, {}, "warn", AT - 61, ("17 of q runs",)),
    "long job": ({"nodes": [node(threads=[busy(300.0)])], "usual": {"q": 20.0}},
                 {"nodes": [node(threads=[busy(99.0)])], "usual": {"q": 20.0}}, "warn", AT - 200,
                 ("17 of q has run for 5 min; 99 of 100 take up to 20 s", "perform_timeout")),
}  # fmt: skip


def test_each_kind_appears_says_since_when_and_its_next_step_and_goes() -> None:
    assert TABLE.keys() | {"Redis"} == KINDS.keys()
    for kind, (made, ended, severity, since, texts) in TABLE.items():
        nodes, facts = made["nodes"], {name: value for name, value in made.items() if name != "nodes"}
        (alert,) = listed(*nodes, **facts)
        assert (alert.kind, alert.severity, alert.since) == (kind, severity, since), alert
        assert all(text in alert.text for text in texts), alert.text
        assert alert.do and (alert.where.startswith("/") or alert.command), alert
        (noted,) = listed(*nodes, **facts, noted={alert.key: AT - 500})
        assert noted.since == AT - 500, "as it was first noted"
        after = {"nodes": [node()], "shards": ()} | {name: facts[name] for name in ("past", "usual") if name in facts}
        after |= ended
        assert listed(*after.pop("nodes"), **after) == [], kind


def test_a_pause_that_a_node_has_not_confirmed_says_so_after_a_while() -> None:
    restless = shard(pause=PAUSE)
    (alert,) = listed(node(), shards=(restless,))
    assert "what 1 shard of host:1:abc had claimed may still start" in alert.says and "they hang" in alert.do
    (alert,) = listed(node(), shards=(shard(pause=Pause(AT - 2, "ann", "")),))
    assert alert.says == "Queue q is paused by ann; 0 jobs queued"


def test_a_queue_that_is_paused_in_part_says_so() -> None:
    (alert,) = listed(node(), shards=(PAUSED, shard(shard=1), shard(shard=2)))
    assert "2 shards of 3 are not" in alert.says and "Pause it again" in alert.do


def test_a_paused_queue_is_not_called_late_but_what_is_not_paused_of_it_is() -> None:
    assert kinds(node(), shards=(PAUSED,)) == ["paused"]
    late = shard(shard=1, length=3, due_in=-157.0)
    assert kinds(node(), shards=(PAUSED, late)) == ["late queue", "paused"]


def test_what_today_was_called_well_is_an_alert() -> None:
    """A queue 157 s late beside one that fails always and one whose morgue grows."""
    failing = shard(queue="failing", processed=0, failed=40)
    morgue = shard(queue="morgue", morgue_length=70)
    past = {"failing": [point(290)], "morgue": [point(290, morgue_length=20)]}
    found = listed(node(), shards=(LATE, failing, morgue), past=past)
    assert [(alert.kind, alert.queue) for alert in found] == [
        ("failing queue", "failing"), ("growing morgue", "morgue"), ("late queue", "q"),
    ]  # fmt: skip
    off = Thresholds(lag=0, failing=0, morgue=0)
    assert listed(node(), shards=(LATE, failing, morgue), past=past, thresholds=off) == []
    own = Thresholds(lags={"q": 600.0}, failing=0, morgue=0)
    assert listed(node(), shards=(LATE, failing, morgue), past=past, thresholds=own) == []


@pytest.mark.parametrize(
    ("row", "past", "noted", "expected"),
    [
        ({"failed": 9}, [point(290)], False, []),  # too few to say
        ({"failed": 9}, [point(290)], True, ["failing queue"]),
        ({"failed": 45, "processed": 55}, [point(290)], False, []),
        ({"failed": 45, "processed": 55}, [point(290)], True, ["failing queue"]),  # it does not flicker
        ({"failed": 39, "processed": 61}, [point(290)], True, []),
        ({"failed": 30, "processed": 5_000}, [point(290), point(60, processed=5_000)], False, ["failing queue"]),
        ({"failed": 30}, [point(290, failed=1_000)], False, []),  # somebody has emptied Redis
        ({"failed": 30}, [point(4_000)], False, []),  # nothing was recorded lately
        ({"failed": 1_000, "processed": 1_000_000}, [point(290)], False, []),  # a share, not a number
    ],
)
def test_a_queue_fails_by_share_without_flicker(
    row: dict[str, int], past: list[Point], noted: bool, expected: list[str]
) -> None:
    notes = {"failing queue:q": AT - 60} if noted else {}
    assert kinds(node(), shards=(shard(**row),), past={"q": past}, noted=notes) == expected


def test_a_queue_that_begins_to_fail_always_is_told_within_twenty_seconds(app: Lowkiq) -> None:
    """However irregular the samples, and however much had gone well before."""
    key = f"{history_key(app.settings.namespace, 'q')}5m"
    # Seconds between samples, seconds for which it has failed, jobs a second before, failing tries a second.
    for every, failing, well, badly in ((5, 20, 5, 5), (6, 20, 50, 50), (7, 20, 5, 5), (6, 40, 100, 0.5)):
        steps = [AT - ago for ago in range(every * 59, 0, -every)]

        def counted(at: float) -> dict[str, int]:
            return {
                "processed": int((min(at, AT - failing) - AT + 2_000) * well),  # noqa: B023
                "failed": int(max(at - AT + failing, 0) * badly),  # noqa: B023
            }

        app.redis().delete(key)
        for at in steps:
            row = counted(at)
            app.redis().rpush(key, f"{at:.0f} 0 0 0 0 0 {row['processed']} {row['failed']} 0 0")
        past = read_milestones(app.caller, app.settings.namespace, ["q"])
        found = listed(node(), shards=(shard(**counted(AT)),), past=past)
        assert [alert.kind for alert in found] == ["failing queue"], (every, failing, well, badly)


def test_a_share_is_taken_since_the_next_older_point_where_samples_came_late() -> None:
    assert kinds(node(), shards=(shard(failed=40),), past={"q": [point(358)]}) == ["failing queue"]
    past = {"q": [point(290, failed=0), point(30, failed=300, processed=900)]}
    few = shard(failed=303, processed=900)
    assert kinds(node(), shards=(few,), past=past, noted={"failing queue:q": AT - 60}) == [], "three of half a minute"


def test_a_morgue_grows_from_its_lowest_and_one_job_is_no_growth() -> None:
    def found(now: int, *past: Point, limit: int = 5) -> list[str]:
        rows = (shard(morgue_length=now),)
        return kinds(node(), shards=rows, past={"q": [*past]}, thresholds=Thresholds(morgue=limit))

    assert found(70, point(290, morgue_length=66)) == []
    assert found(1, point(290), limit=1) == [], "one alone"
    assert found(2, point(290), limit=1) == ["growing morgue"]
    assert found(70, point(3500), point(590, morgue_length=70)) == [], "it has ended"
    emptied = point(3500, morgue_length=900), point(590, morgue_length=900), point(290, morgue_length=0)
    assert found(6, *emptied) == ["growing morgue"], "somebody has emptied it meanwhile"


def test_a_late_queue_says_why_and_where_to_look() -> None:
    idle = node()
    (all_busy,) = listed(node(threads=[busy(1.0)] * 5), shards=(LATE,))
    assert "all 5 threads of its nodes are busy" in all_busy.says and all_busy.where == "/nodes"
    between = node(threads=[busy(1.0), IDLE], loads={"erp@2": {0: 1.2}, "q": {0: 0.7}})
    (flooded,) = listed(between, shards=(LATE,))
    assert "all 2 threads of its nodes are busy: erp has 1 and q has 1" in flooded.says, "one was between two jobs"
    for code, cause, where in (
        ("ahead", "its jobs wait for what runs in shard 0: 17 for 9 s", "view=in_flight"),
        ("max_running", "its max_running is reached: 1 of 1 running", "/queues/q"),
        ("retiring", "node 0, which has shard 0, ends, and takes no new jobs", "/nodes"),
    ):
        reasons = {"q": Reason(code, "", cause)}
        (told,) = listed(node(threads=[busy(1.0), IDLE]), shards=(STUCK, shard(shard=1)), reasons=reasons)
        assert told.says.endswith(f"; {cause}") and where in told.where
    assert "threads are free, so it is catching up" in listed(idle, shards=(LATE,))[0].says
    assert "no node runs it" in listed(node(queues=["other"]), shards=(LATE,))[0].says
    (bad,) = listed(idle, shards=(shard(due_in=-601.0, length=1),))
    assert bad.severity == "bad"
    assert kinds(idle, shards=(shard(due_in=-50.0, length=1),), noted={"late queue:q": AT}) == ["late queue"]


def test_never_a_long_job_where_nothing_is_known_or_jobs_vary() -> None:
    def found(seconds: float, **facts: Any) -> list[str]:
        return kinds(node(threads=[busy(seconds)]), **facts)

    assert found(1_799.0) == found(1_799.0, usual={"other": 1.0}) == []
    assert found(1_800.0) == ["long job"], "a rare one that hangs"
    assert found(9e5, thresholds=Thresholds(long=0)) == []
    assert found(59.0, usual={"q": 0.001}) == [], "under a minute"
    assert found(61.0, usual={"q": 0.001}) == ["long job"]
    assert found(2_900.0, usual={"q": 600.0}) == []
    assert found(2_900.0, usual={"q": 1.0}, thresholds=Thresholds(long=0)) == []
    assert kinds(node(threads=[busy(900.0, to_stop_seconds=60.0)]), usual={"q": 1.0}) == ["runs on"]


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([node(number_of_nodes=2, started_at=AT - 14)], []),
        ([node(number_of_nodes=2, started_at=AT - 15)], ["missing"]),
        ([node(number_of_nodes=2, started_at=AT + 3_600)], ["missing"]),  # a clock that is set wrongly
        # One more node than there were.
        ([node(), node(node="h:2:x", node_number=1, number_of_nodes=3, started_at=AT - 2)], []),
        # A node that begins among others is no reason to be silent of a third.
        ([node(number_of_nodes=3), node(node="h:2", node_number=1, number_of_nodes=3, started_at=AT - 2)], ["missing"]),
    ],
)
def test_nodes_that_begin_wait_for_each_other(nodes: list[NodeHealth], told: list[str]) -> None:
    assert kinds(*nodes) == told


# ── causes and consequences ─────────────────────────────────────────────────────────────────────────────────────────


def test_without_nodes_there_is_one_alert_for_all_that_does_not_run() -> None:
    rows = tuple(shard(queue=f"q{n}", lease_rest=0.0, due_in=-700.0, length=1, busy=1) for n in range(30))
    (alert,) = listed(shards=rows)
    assert alert.kind == "no nodes"
    assert "30 queues have jobs due; the oldest job is 11 min 40 s late; 30 jobs are in the hands" in alert.says


def test_shards_that_others_are_taking_are_told_with_the_node_that_lost_them() -> None:
    lost = tuple(
        shard(queue=q, shard=n, lease_rest=0.0, due_in=-3.0, owner="gone:1:x") for q in ("a", "b") for n in (0, 1)
    )
    living = node(queues=["a", "b"], number_of_nodes=2)
    (alert,) = listed(living, shards=lost)
    assert alert.says == (
        "Node 1 of 2 is missing: 4 shards with due jobs have no node yet; others stand in within seconds"
    )
    (alert,) = listed(msgspec.structs.replace(living, fostered={"a": [0, 1], "b": [0]}))
    assert "others stand in for it, with 3 shards" in alert.says
    frozen = node(node="gone:1:x", node_number=1, number_of_nodes=2, beat_age=16.0, queues=["a", "b"])
    (alert,) = listed(living, frozen, shards=lost)
    assert alert.kind == "late" and "4 shards with due jobs have no node yet" in alert.says
    (alert,) = listed(living, frozen)
    assert alert.says.endswith("; others have its shards")
    for noted in ({"unowned:a": AT - 61, "unowned:b": AT - 61}, {"unowned:a": AT - 61}):
        found = kinds(living, frozen, shards=lost, noted=noted)
        assert found == ["late", *["unowned"] * len(noted)], "after a minute it is no consequence any more"


def test_a_dead_node_that_nobody_misses_is_no_alert() -> None:
    """A second node of one number that stood by, or one whose supervisor was killed and started again."""
    dead = node(node="host:1:old", beat_age=20.0, owned={})
    assert kinds(node(), dead) == []
    assert kinds(node(), dead, shards=(shard(owner="host:1:old", lease_rest=3.0),)) == ["late"], "it has shards still"
    (alone,) = listed(dead, node(node_number=1, number_of_nodes=2, node="n1"))
    assert alone.says.endswith("; it has no shards")


def test_what_nobody_has_noted_yet_began_when_it_was_first_seen(app: Lowkiq) -> None:
    rows = [shard(queue=f"q{n:02}", lease_rest=0.0, length=1, due_in=-65.0) for n in range(12)]
    look = Look(app.caller, app.settings.namespace, Thresholds())

    def seen() -> tuple[float, dict[str, float | None]]:
        found = look(judge([node()], rows, []), rows, by_queue({row.queue: None for row in rows}, rows))
        return found.at, {alert.key: alert.since for alert in found.alerts if alert.kind == "unowned"}

    at, first = seen()
    assert len(first) == 11 and set(first.values()) == {at}
    assert seen()[1] == first, "stable over polls"
    rows[0] = shard(queue="q00")
    gone = seen()[1]
    rows[0] = shard(queue="q00", lease_rest=0.0, length=1, due_in=-65.0)
    at, again = seen()
    assert "unowned:q00" not in gone and again["unowned:q00"] == at, "it has begun anew"


def test_of_many_alerts_of_one_kind_ten_are_named_and_the_rest_counted() -> None:
    rows = tuple(shard(queue=f"q{n:02}", due_in=-100.0 - n, length=1) for n in range(35))
    reasons = {f"q{n:02}": Reason("max_running", "", f"its max_running is reached: {n}") for n in range(35)}
    found = listed(node(queues=None), shards=rows, reasons=reasons)
    assert len(found) == 11 and found[-1].says == "25 more queues are late"
    assert len({alert.key for alert in found}) == 11


def test_queues_that_are_late_of_one_cause_are_one_alert() -> None:
    rows = (shard(queue="a", due_in=-90.0, length=1), shard(queue="b", due_in=-700.0, length=1), shard(queue="c"))
    (alert,) = listed(node(queues=None, threads=[busy(1.0)]), shards=rows)
    assert alert.says == "2 queues are up to 11 min 40 s late: b and a; the only thread of its nodes is busy: q has 1"
    assert (alert.severity, alert.subject, alert.queues) == ("bad", "b", ("a",)), "the first that was late names it"
    assert [alert.is_about(queue) for queue in "abc"] == [True, True, False]


def test_keys_are_short_printable_and_differ() -> None:
    texts = ["a", "b", "x" * 900, "x" * 901, "\x1b", "é", "\ud800"]
    keys = {Alert("late", "bad", text, "", "").key for text in texts}
    assert len(keys) == len(texts) and all(len(key) <= 200 and key.isascii() and key.isprintable() for key in keys)


def test_a_redis_that_may_lose_jobs_unless_somebody_has_said_that_it_may() -> None:
    info = {"redis_version": "7.2.4", "aof_enabled": 1, "role": "master", "connected_slaves": 1}

    def found(config: dict[str, str] | None = None, limits: Thresholds | None = None, **facts: Any) -> list[str]:
        return [alert.subject for alert in alerts_of_redis(info | facts, limits, config)]

    assert found() == found({"appendfsync": "everysec"}) == []
    assert found({"appendfsync": "no"}) == found(aof_enabled=0) == ["persistence"]
    assert found(aof_enabled=0, limits=Thresholds(persistence=0)) == []
    assert found(aof_last_write_status="err", limits=Thresholds(persistence=0)) == ["persistence"], "broken, not chosen"
    assert found(limits=Thresholds(replicas=2)) == ["replicas"]
    assert found(limits=Thresholds(replicas=1)) == []
    full: dict[str, Any] = {"maxmemory": 100, "used_memory": 85}
    assert found(**full) == ["memory"] and found(limits=Thresholds(memory=0.9), **full) == []
    broken = alerts_of_redis(info | {"aof_last_write_status": "err", "rdb_last_bgsave_status": "err"} | full)
    assert len({alert.key for alert in broken}) == len(broken) == 3


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        ("UNLINK lowkiq:{q:0}:due", ["redis-cli", "UNLINK", "lowkiq:{q:0}:due"]),
        ('HDEL k "$(id)`id`\'\\xff"', ["printf", "%s\\n", 'HDEL k "$(id)`id`\'\\xff"', "|", "redis-cli"]),
        ("HDEL k zz... (5,000 bytes)", []),
    ],
)
def test_the_command_that_removes_what_somebody_wrote_runs_nothing_else(remedy: str, command: list[str]) -> None:
    """It is copied into a shell, and the name in it is whoever's who can write to Redis."""
    (alert,) = listed(node(), unreadable=(Unreadable("k", "junk", remedy),))
    assert shlex.split(alert.command) == command


@pytest.mark.parametrize(("name", "is_told"), [("x; $(reboot) 'y'", True), ("two words", True), ("\x1b[2J", False)])
def test_a_command_on_a_queue_runs_nothing_that_its_name_contains(name: str, is_told: bool) -> None:
    stopped = shard(queue=name, length=3, blocked=2, blocked_since=AT - 90, pause=PAUSED.pause, is_at_rest=True)
    commands = [alert.command for alert in listed(node(), shards=(stopped,)) if alert.kind in {"blocked", "paused"}]
    assert [shlex.split(command)[-1] for command in commands if command] == [name] * (2 if is_told else 0)
    assert len(commands) == 2
