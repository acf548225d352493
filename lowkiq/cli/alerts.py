"""The command `alerts`: what is wrong, now or as it comes; who has seen it; and who is told of it elsewhere."""

from __future__ import annotations

import datetime
import smtplib
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from redis.exceptions import RedisError

from lowkiq import Lowkiq, SettingsError, clock
from lowkiq.admin.alerts.acknowledging import MUTED_AT_MOST, acknowledge
from lowkiq.admin.alerts.alert import Alert
from lowkiq.cli import tables
from lowkiq.cli.notifying import Digest, Message, Send, sender
from lowkiq.cli.opening import Answer, answering, as_text, who
from lowkiq.errors import short
from lowkiq.queue.call import redis_time
from lowkiq.recurrence import interval
from lowkiq.transport.errors import explained

ALERTS_EPILOG: Final = """\b
Examples:
  lowkiq alerts -r shop.jobs                             the list that the web view shows, the worst first
  lowkiq alerts -r shop.jobs --json | jq -r '.[].says'
  lowkiq alerts -r shop.jobs --bad --json                for a monitor that wakes people
  lowkiq alerts "growing morgue:OrderSync" --acknowledge --note "known, fix is on its way"
  lowkiq alerts "late queue" --acknowledge --until 2h    nobody hears of late queues for two hours
  lowkiq alerts -r shop.jobs --watch --notify slack+https://hooks.slack.com/services/… --base-url https://jobs.example.com

\b
Thresholds are settings of the application (alert_lag, alert_failing …), so name it with -r; those of one queue can be
set while it runs (lowkiq set OrderSync alert_lag=600). What is acknowledged is told last, and wakes nobody, for as long
as it lasts; with --until, until then. --notify takes the URL of a webhook, which gets JSON, slack+https://… or
mailto:ops@example.com (through LOWKIQ_SMTP_URL, else this machine); it tells what has begun and ended, once a minute at
most. Exits 0 when there is no alert that nobody has acknowledged, 1 when there is, or Redis can't be used, 2 for a
wrong option.
"""
#: Seconds between two looks of a watch.
LOOK: Final = 5.0


@answering
def alerts(
    app: Lowkiq,
    which: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND[:SUBJECT]]...", help="Only of these kinds, or these alone.")
    ] = None,
    bad: Annotated[bool, typer.Option("--bad", help="Only what keeps jobs from running, or loses them.")] = False,
    seen: Annotated[bool, typer.Option("--acknowledge", help="First says that somebody has seen them.")] = False,
    until: Annotated[str | None, typer.Option(help="They are muted until then: 2h, or a time with its date.")] = None,
    note: Annotated[str, typer.Option(help="For all who see that they are acknowledged.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Tells what begins and ends, until Ctrl-C.")] = False,
    notify: Annotated[list[str] | None, typer.Option(metavar="URL", help="With --watch: tells it there, too.")] = None,
    base_url: Annotated[str, typer.Option(metavar="URL", help="Of the web view, for links.")] = "",
    as_json: bool = False,
) -> Answer | None:
    """What is wrong with nodes, queues and Redis, since when, and what to do. Exits 1 when something is."""
    if notify and not watch:
        raise SettingsError("--notify tells of what begins and ends, which --watch sees: give both")
    if (until or note) and not seen:
        raise SettingsError("--until and --note are of --acknowledge: give that, too")
    if watch:
        _watch(app, which, [sender(url, base_url) for url in notify or ()], bad=bad, as_json=as_json)
        return None
    found = _found(app, which, bad=bad)
    if seen:
        moment = None if until is None else _until(until, redis_time(app.caller))
        acknowledge(app.caller, app.settings.namespace, found, who(), until=moment, note=note)
        found = _found(app, which, bad=bad)
    none = "Nothing of that is wrong." if bad or which else "All is well."
    is_well = all(alert.acknowledged for alert in found)
    return Answer(found, [*tables.of_alerts(found, app.caller)] or none, is_well)


def _found(app: Lowkiq, which: Sequence[str] | None, *, bad: bool) -> list[Alert]:
    return [
        alert
        for alert in app.nodes().alerts
        if (alert.severity == "bad" or not bad) and (not which or {alert.kind, alert.key} & {*which})
    ]


def _until(text: str, now: float) -> float:
    """A time, from now or as it is. Raises SettingsError."""
    try:
        seconds = interval(text)
        if seconds is None:
            at = datetime.datetime.fromisoformat(text)
            seconds = (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp() - now
    except (ValueError, OverflowError):
        seconds = -1.0
    if not 0 < seconds <= MUTED_AT_MOST:
        raise SettingsError(f"--until {short(text)} is no time ahead: say 2h, 90m, 1d, or 2026-11-27T20:00 (UTC)")
    return now + seconds


def _watch(app: Lowkiq, which: Sequence[str] | None, senders: Sequence[Send], *, bad: bool, as_json: bool) -> None:
    """Until it is ended. A sender that fails is tried again with the next message, which has what this one had."""
    digests = [(Digest(), send) for send in (lambda message, now: _print(message, now, as_json=as_json), *senders)]
    while True:
        try:
            found, now = _found(app, which, bad=bad), redis_time(app.caller)
        except RedisError as error:
            do = "See its log, its load and the network to it"
            found, now = [Alert("Redis", "bad", "", f"Redis can't be used: {explained(error)}", do)], clock.real()
        for number, (digest, send) in enumerate(digests):
            message = digest(found, clock.monotonic(), at_once=number == 0)
            if message:
                try:
                    send(message, now)
                except (OSError, smtplib.SMTPException) as error:
                    typer.echo(f"lowkiq: not told: {type(error).__name__}: {error}", err=True)
                    digest.failed(clock.monotonic())
                else:
                    digest.sent(message, clock.monotonic())
        time.sleep(LOOK)


def _print(message: Message, now: float, *, as_json: bool) -> None:
    if as_json:
        typer.echo(as_text({"begun": message.begun, "ended": message.ended}))
    else:
        for line in message.lines("", now):
            typer.echo(line)
