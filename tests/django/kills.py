"""
Changes orders of the shop and relays its outbox in processes that are killed with -9, again and again, wherever they
are; then relays what is left.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import django
from django.db import connections, transaction

from lowkiq.django import get_app, outbox, push_by_outbox

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/django_shop"))
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
django.setup()
jobs, models = import_module("shop.jobs"), import_module("shop.models")

ORDERS = 5
ROUNDS = 40
#: Seconds that a process lives at most; some are killed as they begin.
LONGEST = 0.25


def change() -> None:
    """Changes orders, each with its job in the same transaction."""
    while True:
        with transaction.atomic():
            order = models.Order.objects.select_for_update().get(id=random.randint(1, ORDERS))
            order.version += 1
            order.save()
            push_by_outbox(jobs.mirror, payloads=[jobs.Change(order.id, order.version)])


def relay() -> None:
    """Relays, a few rows a turn, so that a kill finds it anywhere."""
    relaying = outbox.relay(every=0.001)
    relaying._batch = random.choice((1, 3, 500))
    relaying.run()


def start(work: Callable[[], None]) -> int:
    """The pid of a child that does this."""
    pid = os.fork()
    if pid == 0:
        try:
            random.seed()
            work()
        finally:
            os._exit(1)
    return pid


def main() -> None:
    """Kills and starts."""
    models.Order.objects.bulk_create(models.Order() for _ in range(ORDERS))
    connections.close_all()
    get_app().close()
    works = [change, relay, relay]
    running = [start(work) for work in works]
    for _ in range(ROUNDS):
        time.sleep(random.uniform(0, LONGEST))
        place = random.randrange(len(works))
        os.kill(running[place], signal.SIGKILL)
        os.waitpid(running[place], 0)
        running[place] = start(works[place])
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    while outbox.relay().run_once() != 0:
        pass


main()
