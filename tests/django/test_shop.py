"""The shop of examples/django_shop, run as people run it: manage.py, nodes, signals, kills."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import pytest

from lowkiq import Lowkiq
from tests.django.shop import Shop
from tests.support import BUDGET, ROOT, RedisServer, wait_until

DRIVER = str(ROOT / "tests/django/kills.py")


def test_its_own_tests_pass(shop: Shop) -> None:
    done = shop.manage("test", "shop")
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stderr


def test_no_migration_is_missing_and_checks_are_well(shop: Shop) -> None:
    shop.did("makemigrations", "--check", "--dry-run")
    shop.did("check")


def test_nodes_perform_on_threads_in_processes_on_the_loop_and_tasks(shop: Shop) -> None:
    with shop.nodes("--nodes", "2", "--threads", "3") as supervised:
        supervised.until_ready(2)
        shop.push(
            "jobs.mirror.push(*(jobs.Change(1, n) for n in range(3)))\n"
            "jobs.mirror_apart.perform_async([{'id': 2, 'payload': n} for n in range(3)])\n"
            "jobs.mirror_async.perform_async([{'id': 3, 'payload': n} for n in range(3)])\n"
            "[tasks.note.enqueue(4, n) for n in range(3)]\n"
            "tasks.anote.enqueue(5, 7)\n"
            "tasks.attempt.enqueue(6)\n"
        )
        expected = {1: [0, 1, 2], 2: [0, 1, 2], 3: [0, 1, 2], 4: [0, 1, 2], 5: [7], 6: [1]}
        with contextlib.suppress(TimeoutError):  # then what differs is shown
            wait_until(lambda: shop.mirrored() == expected, within=BUDGET / 4, every=0.1)
        assert shop.mirrored() == expected, supervised.log_path.read_text()[-4000:]
        assert '"app": "lowkiq.django.site"' in shop.did("lowkiq", "status", "--json")  # which asks the supervisor
        assert "mirror-apart" in shop.did("lowkiq", "stats")  # which asks Redis
        supervised.end(signal.SIGTERM)


def test_a_burst_ends_by_itself(shop: Shop) -> None:
    shop.push("jobs.mirror.push(jobs.Change(1, 1))")
    shop.did("lowkiq", "--burst")
    assert shop.mirrored() == {1: [1]}


def test_a_connection_that_died_costs_the_next_batch_nothing(shop: Shop, request: pytest.FixtureRequest) -> None:
    if "sqlite" in request.node.name:
        pytest.skip("SQLite has no connections to lose")
    kinds = ("jobs.mirror.push(jobs.Change(1, {n}))", "jobs.mirror_apart.perform_async([{{'id': 2, 'payload': {n}}}])",
             "jobs.mirror_async.perform_async([{{'id': 3, 'payload': {n}}}])")  # fmt: skip
    with shop.nodes("--threads", "1") as supervised:
        supervised.until_ready(1)
        for n in (1, 2):
            shop.push("\n".join(kind.format(n=n) for kind in kinds))
            wait_until(lambda n=n: shop.mirrored() == {id: list(range(1, n + 1)) for id in (1, 2, 3)}, f"round {n}")
            shop.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert "job_failed" not in supervised.log_path.read_text()
        supervised.end(signal.SIGTERM)


def test_a_task_that_fails_is_tried_again_holds_up_its_key_and_is_buried_alone(
    shop: Shop, redis_server: RedisServer
) -> None:
    shop.push("[tasks.note.enqueue(4, n) for n in (1, -1, 2)]")
    with shop.nodes() as supervised:
        wait_until(lambda: shop.mirrored() == {4: [1]}, "what is before it", every=0.1)
        wait_until(lambda: "no version -1" in supervised.log_path.read_text(), "its failure")
        app = Lowkiq(redis_url=redis_server.url)

        def is_over() -> bool:
            app.actions("tasks.default", 5).perform_now(["4"])
            return shop.mirrored() == {4: [1, 2]}

        wait_until(is_over, "what is behind it", every=0.2)
        app.close()
        assert "no version -1" in shop.did("lowkiq", "morgue", "list", "tasks.default")
        supervised.end(signal.SIGTERM)


@pytest.mark.parametrize("word", ["lowkiq", "lowkiq_outbox", "check"])
def test_a_setting_that_is_none_is_told_in_a_line(shop: Shop, word: str) -> None:
    refused = shop.manage(word, LOWKIQ='{"namespce": "shop"}')
    assert refused.returncode != 0
    assert "did you mean `namespace`?" in refused.stderr


def test_what_is_killed_anywhere_leaves_each_change_in_order(shop: Shop) -> None:
    with shop.nodes("--nodes", "2") as supervised:
        supervised.until_ready(2)
        done = shop.run(DRIVER)
        assert done.returncode == 0, done.stdout + done.stderr
        versions: dict[int, int] = dict(shop.ask("SELECT id, version FROM shop_order"))
        assert sum(versions.values()) > 50, "the test did nothing"
        wait_until(lambda: {id: set(told) for id, told in shop.mirrored().items()} == _all(versions), "every change")
        for id, told in shop.mirrored().items():
            assert list(dict.fromkeys(told)) == list(range(1, versions[id] + 1)), f"order {id}: {told}"
            assert told[-1] == versions[id]
        assert shop.ask("SELECT count(*) FROM lowkiq_outbox") == [(0,)]
        supervised.end(signal.SIGTERM)


def _all(versions: dict[int, int]) -> dict[int, Any]:
    return {id: set(range(1, version + 1)) for id, version in versions.items() if version}
