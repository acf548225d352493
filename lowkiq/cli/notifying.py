"""
Notifying: tells people elsewhere of alerts as they begin and end, by webhook, Slack or mail. What to tell is decided by
Digest, which is pure; a sender sends it.
"""

from __future__ import annotations

import json
import os
import smtplib
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from email.message import EmailMessage
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from lowkiq import SettingsError
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.words import age, plural
from lowkiq.errors import short

#: Seconds between two messages: what comes meanwhile is in the next. One that ends so soon after it began was flapping.
BETWEEN, FLAPS = 60.0, 600.0
#: Seconds for a message to be sent.
PATIENCE: Final = 10.0
#: The host of Slack's webhooks.
SLACK: Final = "hooks.slack.com"
#: Where mail is handed over, as smtp://user:password@host:port or smtps://…; else to this machine.
SMTP: Final = "LOWKIQ_SMTP_URL"


class Message(NamedTuple):
    """What has begun and ended since the last one."""

    begun: Sequence[Alert]
    ended: Sequence[Alert]

    @property
    def title(self) -> str:
        """A line."""
        bad = sum(alert.severity == "bad" for alert in self.begun)
        begun = f"{plural(len(self.begun), 'alert')}{f', {bad} urgent' if bad else ''}" if self.begun else ""
        return "Lowkiq: " + ", ".join(filter(None, [begun, f"{len(self.ended)} over" if self.ended else ""]))

    def lines(self, base_url: str, now: float) -> list[str]:
        """An alert a line, with its link."""
        told = [
            f"[{one.severity}] {one.kind}{_since(one, now)}: {one.text}{_link(one, base_url)}" for one in self.begun
        ]
        return told + [f"[over] {one.kind}: {one.says}" for one in self.ended]


class Digest:
    """Knows what was told, and what is to be told next."""

    def __init__(self) -> None:
        self._told: dict[str, Alert] = {}
        #: Key → when it ended last, of what may begin again.
        self._ended_at: dict[str, float] = {}
        self._sent_at = float("-inf")

    def __call__(self, alerts: Sequence[Alert], now: float, *, at_once: bool = False) -> Message | None:
        """The message that is due, if one is. `sent` tells that it has gone, and `failed` that it has not."""
        there = {alert.key: alert for alert in alerts if not alert.acknowledged}
        if now - self._sent_at < BETWEEN and not at_once:
            return None
        begun = [alert for key, alert in there.items() if key not in self._told and not self._flaps(key, now)]
        ended = [alert for key, alert in self._told.items() if key not in there]
        return Message(begun, ended) if begun or ended else None

    def sent(self, message: Message, now: float) -> None:
        """The message has gone."""
        self._sent_at = now
        self._told |= {alert.key: alert for alert in message.begun}
        for alert in message.ended:
            del self._told[alert.key]
            self._ended_at[alert.key] = now
        self._ended_at = {key: at for key, at in self._ended_at.items() if now - at < FLAPS}

    def failed(self, now: float) -> None:
        """The message has not gone: what it had is in the next one."""
        self._sent_at = now

    def _flaps(self, key: str, now: float) -> bool:
        return now - self._ended_at.get(key, float("-inf")) < FLAPS


Send = Callable[[Message, float], None]


def sender(url: str, base_url: str) -> Send:
    """
    What sends messages to a URL: mailto:, slack+https: (and hooks.slack.com), else a webhook. It raises OSError.

    Raises:
        SettingsError: nobody can be told there.
    """
    parts = urlsplit(url)
    if parts.scheme == "mailto" and "@" in parts.path:
        return lambda message, now: _mail(unquote(parts.path), message, base_url, now)
    is_slack = parts.scheme == "slack+https" or parts.hostname == SLACK
    target = url.removeprefix("slack+")
    if urlsplit(target).scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(f"--notify {short(url)} is no way to tell: give https://…, slack+https://… or mailto:ops@…")

    def post(message: Message, now: float) -> None:
        lines = [message.title, *message.lines(base_url, now)]
        body: Mapping[str, Any] = {"text": "\n".join(lines)} if is_slack else _as_json(message, base_url)
        headers = {"Content-Type": "application/json", "User-Agent": "lowkiq"}
        request = urllib.request.Request(target, json.dumps(body).encode(), headers)  # noqa: S310 (checked above)
        try:
            urllib.request.urlopen(request, timeout=PATIENCE).close()  # noqa: S310 (likewise)
        except urllib.error.HTTPError as error:
            error.close()  # it is an answer, too, with a connection
            raise

    return post


def _mail(to: str, message: Message, base_url: str, now: float) -> None:
    server = urlsplit(os.environ.get(SMTP, "") or "smtp://localhost")
    mail = EmailMessage()
    user = unquote(server.username or "")
    mail["Subject"], mail["To"] = message.title, to
    mail["From"] = parse_qs(server.query).get("from", [user if "@" in user else f"lowkiq@{socket.getfqdn()}"])[0]
    mail.set_content("\n\n".join(message.lines(base_url, now)))
    kind = smtplib.SMTP_SSL if server.scheme == "smtps" else smtplib.SMTP
    with kind(server.hostname or "localhost", server.port or 0, timeout=PATIENCE) as smtp:
        if server.scheme != "smtps" and smtp.has_extn("starttls"):
            smtp.starttls()
        if user:
            smtp.login(user, unquote(server.password or ""))
        smtp.send_message(mail)


def _as_json(message: Message, base_url: str) -> dict[str, Any]:
    rows = {name: [_row(alert, base_url) for alert in getattr(message, name)] for name in Message._fields}
    return {"title": message.title} | rows


def _row(alert: Alert, base_url: str) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(alert)
    return row | {"key": alert.key, "text": alert.text, "link": _link(alert, base_url).strip()}


def _link(alert: Alert, base_url: str) -> str:
    return f" {base_url.rstrip('/')}{alert.where or '/'}" if base_url else ""


def _since(alert: Alert, now: float) -> str:
    return f" (for {age(max(now - alert.since, 0.0))})" if alert.since is not None else ""
