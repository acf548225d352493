"""Pages and operations of incidents, of what nodes are asked for, and of dumps."""

from __future__ import annotations

import msgspec
import pytest

from lowkiq.admin.beats.dumps import KEPT_SECONDS, MOST, MOST_TEXT, keep_dump, read_dump, read_dumps
from lowkiq.admin.beats.hands import HANDS, ask, read_hand, take, tell
from lowkiq.admin.beats.health import forget
from lowkiq.admin.past.incidents import NewIncident, note, read_incidents
from lowkiq.queue.call import redis_time
from tests import junk
from tests.support import wait_until
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read

EVIL = "<script>x</script>"


@pytest.fixture
def past(app):
    caller, namespace = app.caller, app.settings.namespace
    now = redis_time(caller)
    news = [
        NewIncident(key=f"{n}", kind="death" if n % 2 else "quiet", severity="bad", says=f"n{n} {EVIL}",
                    at=now - n * 4e4, queue="orders" if n == 3 else "", node="h:1:a", who="me")
        for n in range(8)
    ]  # fmt: skip
    note(caller, namespace, [*news, NewIncident(key="on", kind="late queue", severity="warn", says="late", lasts=True)])
    return app


def test_the_timeline_has_days_filters_and_what_goes_on(browser, past):
    page = browser.get("/incidents")
    assert EVIL not in page.text
    text = read(browser, "/incidents").text
    for told in ("n0", "n7", "late", "(it goes on)", "by me"):
        assert told in text
    assert page.text.count("<h2>") >= 3
    assert "n3" in read(browser, "/incidents?queue=orders").text
    assert "n4" not in read(browser, "/incidents?queue=orders").text
    assert "n2 " not in read(browser, "/incidents?kind=death").text
    assert ">late queue</option>" in page.text
    assert "(it goes on)" in read(browser, "/incidents?kind=late%20queue").text
    assert "n7 " not in read(browser, "/incidents?over=1d").text
    assert browser.get("/incidents?until=x").status_code == 400
    live = browser.get("/incidents", X_Lowkiq_Live="slow").text
    assert 'data-live="incidents"' in live
    assert "<form" not in live
    assert 'data-live="incidents"' not in browser.get("/incidents", X_Lowkiq_Live="tick").text  # reads nothing


def test_the_api_gives_incidents_page_by_page(browser, past):
    first = browser.get("/api/v1/incidents?limit=4").json()
    second = browser.get(f"/api/v1/incidents?limit=100&cursor={first['next']}").json()
    assert [row["key"] for row in first["incidents"] + second["incidents"]] == ["on", *map(str, range(8))]
    assert second["next"] is None
    assert browser.get("/api/v1/incidents?limit=0").status_code == 400
    assert [row["key"] for row in browser.get("/api/v1/incidents?queue=orders").json()["incidents"]] == ["3"]


def test_a_node_is_asked_only_by_post_and_after_a_question_and_answers_are_shown(browser, app):
    tell_health(app, node="host:2:y", number_of_nodes=1, supervisor_pid=None)
    token = browser.get("/api/v1/token").json()["token"]
    for action in HANDS:
        question = read(browser, f"/nodes/host:2:y/actions?action={action}")
        assert action.capitalize() in question.text
    assert "no supervisor" in read(browser, "/nodes/host:2:y/actions?action=restart").text
    assert take(app.caller, app.settings.namespace, "host:2:y")[1] == []  # a question asks for nothing
    assert browser.get("/nodes/host:2:y/actions?action=stop").status_code == 400
    assert browser.get("/nodes/nobody/actions?action=quiet").status_code == 404
    assert browser.post("/nodes/host:2:y/actions", {"action": "quiet"}).status_code == 403
    sent = browser.post("/nodes/host:2:y/actions", {"action": "dump", "token": token})
    assert sent.status_code == 303
    _, (request,) = take(app.caller, app.settings.namespace, "host:2:y")
    assert (request.action, "anyone at" in request.who) == ("dump", True)
    assert "has not heard yet" in read(browser, sent.headers["location"]).text
    done = msgspec.structs.replace(request, state="done", says=f"so {EVIL}", dump="0123456789abcdef")
    assert tell(app.caller, app.settings.namespace, done)
    assert not tell(app.caller, app.settings.namespace, msgspec.structs.replace(request, state="heard"))
    page = browser.get(sent.headers["location"]).text
    assert EVIL not in page
    assert "/dumps/0123456789abcdef" in page
    assert browser.get("/hands/0000000000000000").status_code == browser.get("/hands/x").status_code == 404
    answer = browser.send("POST", "/api/v1/nodes/host:2:y/actions", {"X_Lowkiq_Token": token}, json={"action": "quiet"})
    assert answer.status_code == 202
    assert browser.get(answer.headers["location"]).json()["state"] == "asked"
    for _ in range(12):
        answer = browser.send(
            "POST", "/api/v1/nodes/host:2:y/actions", {"X_Lowkiq_Token": token}, json={"action": "quiet"}
        )
    assert (answer.status_code, "does not hear" in answer.text) == (409, True)
    assert len(read_incidents(app.caller, app.settings.namespace, kind="quiet")) >= 10


def test_of_a_node_that_is_gone_page_and_api_say_so_and_it_is_over(browser, app):
    tell_health(app, node="host:2:y", number_of_nodes=1)
    request = ask(app.caller, app.settings.namespace, "host:2:y", "restart", "me")
    assert browser.get(f"/api/v1/hands/{request.id}").json()["state"] == "asked"
    forget(app.caller, app.settings.namespace, "host:2:y")
    assert browser.get(f"/api/v1/hands/{request.id}").json()["state"] == "gone"
    text = read(browser, f"/hands/{request.id}").text
    assert "gone The node is gone: it has ended, or was killed, before it told the outcome." in text


def test_a_read_only_view_asks_nobody(browse, make_web, app):
    tell_health(app, node="host:2:y", number_of_nodes=1)
    browser = browse(make_web(read_only=True))
    assert "Restart</button>" not in browser.get("/nodes").text
    assert browser.post("/nodes/host:2:y/actions", {"action": "quiet"}).status_code == 403
    assert take(app.caller, app.settings.namespace, "host:2:y")[1] == []


def test_dumps_are_kept_bounded_shown_and_downloaded(browser, app):
    caller, namespace = app.caller, app.settings.namespace
    for number in range(MOST + 5):
        keep_dump(caller, namespace, f"{number:016x}", "h:1:a", "h", EVIL, f"Thread {number}\n{EVIL}\n")
    assert [dump.id for dump in read_dumps(caller, namespace)] == [f"{n:016x}" for n in reversed(range(5, MOST + 5))]
    assert read_dump(caller, namespace, f"{0:016x}") is None
    keep_dump(caller, namespace, "f" * 16, "h:1:a", "h", "me", "é" * MOST_TEXT)
    found = read_dump(caller, namespace, "f" * 16)
    assert found and found[1].endswith("at most 1 MiB)\n")
    assert len(found[1].encode()) <= MOST_TEXT
    assert 0 < app.redis().ttl(f"{namespace}:{{dumps}}:{'f' * 16}:text") <= KEPT_SECONDS
    page = browser.get(f"/dumps/{24:016x}").text
    assert "Thread 24" in page and EVIL not in page and 'data-copy="dump-text"' in page
    text = browser.get(f"/dumps/{24:016x}/text")
    assert text.text == f"Thread 24\n{EVIL}\n"
    assert "attachment" in text.headers["content-disposition"]
    assert "text/plain" in text.headers["content-type"]
    assert "h:1:a" in read(browser, "/dumps").text
    assert browser.get("/dumps/x").status_code == 404
    assert browser.get("/api/v1/dumps").json()["dumps"][0]["id"] == "f" * 16
    assert browser.get(f"/api/v1/dumps/{24:016x}").json()["text"] == f"Thread 24\n{EVIL}\n"


def test_what_people_did_to_many_jobs_is_kept_with_who_did_it(browser, app):
    shard = open_queue(app)
    for id in ("1", "2", "3"):
        shard.push(id)
    token = browser.get("/api/v1/token").json()["token"]

    def act(**body):
        return browser.send("POST", "/api/v1/queues/q/actions", {"X_Lowkiq_Token": token}, json=body)

    assert act(action="bury", ids=["1", "2", "gone"]).json() == {"moved": 2}
    act(action="bury", ids=["3"])  # one is not worth a line
    (found,) = read_incidents(app.caller, app.settings.namespace)
    assert (found.kind, found.queue, found.says) == ("bury", "q", "Bury: 2 of 3 jobs of q")
    assert found.who.startswith("anyone at")
    assert act(action="delete", all={"view": "morgue"}).status_code == 202

    def bulk():
        rows = read_incidents(app.caller, app.settings.namespace, kind="bulk action")
        return rows and rows[0].until and rows[0]

    ended = wait_until(bulk)
    assert ("3 jobs of q" in ended.says, ended.goes_on) == (True, False)


def test_junk_breaks_neither_timeline_nor_dumps_nor_answers(browser, app):
    client, ns = junk.set_up(app), app.settings.namespace
    for plant, _ in junk.OF_INCIDENTS.values():
        plant(client, ns)
        assert browser.get("/incidents").status_code == browser.get("/api/v1/incidents").status_code == 200
        assert "<b onload" not in browser.get("/incidents").text
    for text in (*junk.GARBAGE, b"[" * 9_000, junk.EVIL, b'{"id":"0123456789abcdef"}'):
        client.set(f"{ns}:{{hands}}:0123456789abcdef", text)
        client.set(f"{ns}:{{dumps}}:0123456789abcdef", text)
        client.zadd(f"{ns}:{{dumps}}", {b"0123456789abcdef": 1, junk.EVIL: 2})
        assert browser.get("/dumps").status_code == 200
        for path in ("/hands/0123456789abcdef", "/dumps/0123456789abcdef"):
            assert browser.get(path).status_code == 404
    for key in ("{hands}:0123456789abcdef", "{dumps}:0123456789abcdef", "{dumps}"):
        junk.as_kind(client, f"{ns}:{key}", "hash")
    assert browser.get("/dumps").status_code == 200
    keep_dump(app.caller, ns, "a" * 16, "h:1:a", "h", "me", "text")
    assert read_dump(app.caller, ns, "a" * 16)
    assert read_hand(app.caller, ns, "0123456789abcdef")[1] is None
