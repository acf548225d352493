"""Recurring jobs are listed, those that run next first, and changed from their page."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from starlette.applications import Starlette

from lowkiq import Lowkiq
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.web.pages import recurring
from lowkiq.worker import Worker
from tests.web.conftest import Browser
from tests.web.pages.test_flow import press
from tests.web.reading import Html, read

WHERE = "/queues/q/recurring"


@pytest.fixture
def browser(
    make_web: Callable[..., Starlette], browse: Callable[..., Browser], app: Lowkiq, work: type[Worker]
) -> Browser:
    app.push(work, [{"id": "1"}])
    return browse(make_web())


def ask(action: str, id: str) -> str:
    return f"{WHERE}?action={action}&id={quote(id)}"


def test_nothing_recurs(browser: Browser) -> None:
    assert "Nothing recurs." in read(browser, "/recurring").text


def test_it_is_listed_paused_resumed_run_and_removed(browser: Browser, app: Lowkiq, work: type[Worker]) -> None:
    app.recurring.set(work, "later", "2h")
    app.recurring.set(work, "<b>eu", 300, missed="all", backlog=24)
    text = read(browser, "/recurring").text
    assert text.index("<b>eu") < text.index("later") and "every 5 m" in text and "all 24" in text and "not yet" in text
    assert "Pause <b>eu of q?" in Html(browser.get(ask("pause", "<b>eu")).text).text
    done = press(browser, ask("pause", "<b>eu"), reason="it is summer")
    assert (done.status_code, done.headers["location"]) == (303, "/recurring")
    text = read(browser, "/recurring").text
    assert text.index("later") < text.index("<b>eu") and "paused" in text and "it is summer" in text
    press(browser, ask("resume", "<b>eu"))
    press(browser, ask("run_now", "<b>eu"))
    assert [*work.queries.find("<b>eu")]
    press(browser, ask("remove", "<b>eu"))
    assert [job.id for job in app.recurring] == ["later"]
    deeds = [row.says for row in read_incidents(app.caller, app.settings.namespace, kind="recurring")]
    assert [one.rpartition(" q ")[2] for one in reversed(deeds)][2:] == [
        "was paused",
        "was resumed",
        "was run",
        "was removed",
    ]


def test_its_rule_is_changed_and_its_payload_stays(browser: Browser, app: Lowkiq, work: type[Worker]) -> None:
    app.recurring.set(work, "eu", "0 6 * * 1-5", tz="Europe/Berlin", payload={"of": "eu"})
    asked = browser.get(ask("set", "eu")).text
    assert 'value="0 6 * * 1-5"' in asked and 'value="Europe/Berlin"' in asked and "<option selected>merge" in asked
    done = press(browser, ask("set", "eu"), every="15m", tz="", offset="60", missed="all", backlog="24")
    assert (done.status_code, done.headers["location"]) == (303, "/recurring")
    (job,) = app.recurring
    assert (job.rule.every, job.rule.offset, job.rule.missed, job.rule.backlog) == (900.0, 60.0, "all", 24)
    assert work.codec.load(job.payload) == {"of": "eu"}
    assert "every 15 m, 1 m after" in read(browser, "/recurring").text


def test_what_is_not_changed_in_the_form_stays_to_the_last_digit(
    browser: Browser, app: Lowkiq, work: type[Worker]
) -> None:
    app.recurring.set(work, "eu", 1_234_567.25, offset=123_456.125)
    fields = {row.get("name"): row.get("value") or "" for row in Html(browser.get(ask("set", "eu")).text).all("input")}
    press(browser, ask("set", "eu"), **{name: fields[name] for name in ("every", "tz", "offset", "backlog")})
    (job,) = app.recurring
    assert (job.rule.every, job.rule.offset, job.rule.missed) == (1_234_567.25, 123_456.125, "merge")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"every": '"><b>'}, "which is neither an interval"),
        ({"every": "15m", "offset": "much"}, "offset is 'much', it must be a number"),
        ({"every": "15m", "missed": "none"}, "missed is 'none'"),
        ({"every": "0 6 * * *", "tz": "Mars"}, "tz is 'Mars'"),
    ],
)
def test_a_wrong_rule_is_told_of_beside_what_was_typed(
    browser: Browser, app: Lowkiq, work: type[Worker], wrong: dict[str, str], told: str
) -> None:
    app.recurring.set(work, "eu", 300)
    answer = press(browser, ask("set", "eu"), **wrong)
    assert answer.status_code == 400 and told in Html(answer.text).text and "><b>" not in answer.text
    assert Html(answer.text).all("input", name="every")[0]["value"] == wrong["every"]
    (job,) = app.recurring
    assert job.rule.every == 300.0


def test_of_many_those_are_shown_that_run_next(
    browser: Browser, app: Lowkiq, work: type[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurring, "SHOWN", 3)
    for number in range(9):
        app.recurring.set(work, f"id-{number}", 1_000_000.0, offset=float((9 - number) * 100))
    app.recurring.pause(work, "id-8")
    soonest = [job.id for job in app.recurring][:3]
    text = read(browser, "/recurring?queue=q").text
    assert [id for id in (f"id-{number}" for number in range(9)) if id in text] == sorted(soonest)
    assert "9 jobs recur; these 3 run next" in text and "Recurring jobs of q" in text


def test_what_is_gone_or_wrong_is_told(browser: Browser, app: Lowkiq, work: type[Worker]) -> None:
    told = press(browser, ask("run_now", "nobody"))
    assert told.status_code == 400 and "nothing recurs as 'nobody'" in Html(told.text).text
    assert browser.get(ask("explode", "x")).status_code == 400
    assert browser.get("/queues/no/recurring?action=pause&id=x").status_code == 404
    assert browser.get("/recurring?queue=no").status_code == 404
    assert browser.post(WHERE, {"action": "remove", "id": "x"}).status_code == 403


def test_a_view_that_only_reads_has_no_buttons(
    make_web: Callable[..., Starlette], browse: Callable[..., Browser], app: Lowkiq, work: type[Worker]
) -> None:
    app.recurring.set(work, "eu", 300)
    browser = browse(make_web(read_only=True))
    assert "Remove" not in read(browser, "/recurring").text
    assert browser.get(ask("remove", "eu")).status_code == 403
