"""`manage.py lowkiq_outbox`: the relay of the outbox, in a process of its own."""

from __future__ import annotations

import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from lowkiq import log
from lowkiq.django import outbox
from lowkiq.outbox.relay import EVERY


class Command(BaseCommand):
    """Pushes what is in the outbox, until INT or TERM."""

    help = "Pushes what is in the outbox, in the order of its rows. Several may run: one sends, the others stand by."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", metavar="ALIAS", help="the one whose outbox it is")
        parser.add_argument("--every", type=float, default=EVERY, metavar="SECONDS", help="between looks at the table")
        parser.add_argument("--once", action="store_true", help="end when nothing is left to send")

    def handle(self, *_: Any, **options: Any) -> None:
        """Relays."""
        log.configure()
        relay = outbox.relay(options["database"], every=options["every"])
        if options["once"]:
            while relay.run_once():
                pass
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: relay.stop())
        relay.run()
