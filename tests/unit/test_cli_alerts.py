"""The command `alerts`: what is acknowledged, and who is told elsewhere of what begins and ends."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from email import message_from_bytes
from typing import Any

import msgspec
import pytest

from lowkiq import Lowkiq, SettingsError, Worker
from lowkiq.admin.alerts.alert import Acknowledged, Alert
from lowkiq.cli.notifying import BETWEEN, FLAPS, Digest, Message, sender
from tests.unit.conftest import Run
from tests.unit.test_cli_jobs import as_json

LATE = Alert("late queue", "bad", "q", "It is late", "Wait", since=100.0, where="/queues/q")
PAUSED = Alert("paused", "warn", "q", "It is paused", "Resume it")


def test_an_alert_is_acknowledged_with_a_note_and_muted(lowkiq: Run, queue: type[Worker], app: Lowkiq) -> None:
    queue.perform_async([{"id": "a"}])
    queue.actions.pause("we count", who="bob")
    kinds = [alert["kind"] for alert in json.loads(lowkiq("alerts", "--json").stdout)]
    assert "paused" in kinds
    one = lowkiq("alerts", "paused:shop")
    assert one.returncode == 1 and len([line for line in one.stdout.splitlines() if line.startswith("[")]) == 1
    seen = lowkiq("alerts", "paused", "--acknowledge", "--until", "2h", "--note", "until noon")
    assert seen.returncode == 0 and "(seen by " in seen.stdout and "until noon)" in seen.stdout
    (alert,) = as_json(lowkiq, "alerts", "paused")
    assert alert["acknowledged"]["note"] == "until noon" and alert["acknowledged"]["until"] > 1e9
    for wrong in (("--acknowledge", "--until", "soon"), ("--note", "x"), ("--notify", "https://x")):
        ended = lowkiq("alerts", *wrong)
        assert ended.returncode == 2 and wrong[-2] in ended.stderr


def test_what_begins_and_ends_is_told_once_a_minute_at_most() -> None:
    digest, now = Digest(), 0.0
    first = digest([LATE], now)
    assert first and first.title == "Lowkiq: 1 alert, 1 urgent"
    digest.failed(now)
    assert digest([LATE], now + BETWEEN - 1) is None
    again = digest([LATE, PAUSED], now := now + BETWEEN)
    assert again and list(again.begun) == [LATE, PAUSED], "what could not be told is in the next one"
    digest.sent(again, now)
    assert digest([LATE, PAUSED], now + BETWEEN) is None
    over = digest([PAUSED], now := now + BETWEEN)
    assert over and over.title == "Lowkiq: 1 over" and over.lines("", 0.0) == ["[over] late queue: It is late"]
    digest.sent(over, now)
    assert digest([PAUSED, LATE], now + BETWEEN) is None, "it flaps"
    assert digest([PAUSED, LATE], now + FLAPS) is not None, "it lasts"
    seen = msgspec.structs.replace(PAUSED, acknowledged=Acknowledged("ann"))
    assert (ended := digest([seen], now + BETWEEN)) and list(ended.ended) == [PAUSED]
    assert Digest()([seen], 0.0) is None


@pytest.fixture
def posts() -> Iterator[tuple[str, list[Any]]]:
    found: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if len(found) == 1 else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", found
        server.shutdown()


def test_a_webhook_gets_json_with_links_and_its_refusal_is_an_error(posts: tuple[str, list[Any]]) -> None:
    url, found = posts
    send = sender(url, "https://jobs.example.com/lowkiq/")
    send(Message([LATE], [PAUSED]), 160.0)
    (told,) = found
    assert told["title"] == "Lowkiq: 1 alert, 1 urgent, 1 over"
    assert told["begun"][0]["link"] == "https://jobs.example.com/lowkiq/queues/q"
    assert [row["key"] for row in told["ended"]] == ["paused:q"]
    with pytest.raises(OSError, match="500"):
        send(Message([LATE], []), 160.0)


def test_slack_gets_a_text(posts: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, found = posts
    sender(f"slack+{url}".replace("slack+http:", "slack+https:"), "")  # it can be
    monkeypatch.setattr("lowkiq.cli.notifying.SLACK", "127.0.0.1")
    sender(url, "https://j")(Message([LATE], []), 160.0)
    assert found == [
        {"text": "Lowkiq: 1 alert, 1 urgent\n[bad] late queue (for 1 min): It is late. Wait. https://j/queues/q"}
    ]


class Smtp(socketserver.StreamRequestHandler):
    """As much of a mail server as a message needs."""

    mails: list[bytes]

    def handle(self) -> None:
        self.wfile.write(b"220 hi\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.mails.append(b"".join(lines))
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")
            if line.upper().startswith(b"QUIT"):
                return


def test_mail_goes_by_the_server_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Smtp.mails = []
    with socketserver.TCPServer(("127.0.0.1", 0), Smtp) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("LOWKIQ_SMTP_URL", f"smtp://127.0.0.1:{server.server_address[1]}?from=lowkiq@example.com")
        sender("mailto:ops@example.com", "")(Message([LATE], []), 160.0)
        server.shutdown()
    mail = message_from_bytes(Smtp.mails[0])
    assert (mail["To"], mail["From"]) == ("ops@example.com", "lowkiq@example.com")
    assert mail["Subject"] == "Lowkiq: 1 alert, 1 urgent" and "It is late. Wait." in mail.get_payload()


@pytest.mark.parametrize("url", ["ops@example.com", "mailto:", "ftp://x/y", "https:///x", ""])
def test_what_is_no_way_to_tell_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="is no way to tell: give https"):
        sender(url, "")
