"""What Django's tasks are promised, on the backends of project.py; Django's own runner of tests runs it."""

from __future__ import annotations

import datetime
from collections import Counter
from importlib import import_module
from typing import Any

from django.core.exceptions import ValidationError
from django.test import SimpleTestCase
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from lowkiq import Bury, InvalidJob, RetryIn, testing
from lowkiq.django import app
from lowkiq.django.task_worker import HOME, Enqueued
from lowkiq.errors import ProcessDied
from lowkiq.job import Job

tasks, signals = import_module(HOME), import_module(f"{HOME}.signals")
task = tasks.task


class OwnError(Exception):
    """Nobody else's."""


class Whole(int):
    """What some library makes of a number."""


ERRORS: dict[str, tuple[BaseException, BaseException | None, type]] = {
    "built in": (ValueError("no"), None, ValueError),
    "of Django's": (ValidationError("no"), None, ValidationError),
    "own": (OwnError("no"), None, OwnError),
    "its cause": (RetryIn(0), OwnError("no"), OwnError),
    "buried": (Bury("never"), None, Bury),
    "buried for": (Bury("never"), ValidationError("no"), ValidationError),
}
RETURNED: dict[str, Any] = {
    "tuple": (1, (2,)), "bytes": b"x", "mapping": {"a": (1,)}, "text": mark_safe("<b>"),
    "function": len, "set": {1}, "no text": b"\xff", "in a list": [object()],
}  # fmt: skip
ran: Counter[str] = Counter()
seen: list[Any] = []


@task
def fail(name: str) -> None:
    error, cause, _ = ERRORS[name]
    raise error from cause


@task
def give(name: str) -> Any:
    ran[name] += 1
    return RETURNED[name]


@task(takes_context=True)
def look(context: Any, *args: Any) -> None:
    seen.append((context.task_result.task, args))


class Contract(SimpleTestCase):
    def setUp(self) -> None:
        self.told: list[tuple[Any, Any]] = []
        for signal in (signals.task_enqueued, signals.task_started, signals.task_finished):
            signal.connect(self.hear)
            self.addCleanup(signal.disconnect, self.hear)
        seen.clear()
        ran.clear()

    def hear(self, sender: Any, signal: Any, task_result: Any, **_: Any) -> None:
        self.told.append((signal, task_result))

    def run_all(self, called: Any, *args: Any) -> Any:
        """Enqueues a call and runs all that comes of it; returns the result that was told last."""
        with testing.fake(app) as jobs:
            called.enqueue(*args)
            jobs.drain("+40d")
        return self.told[-1][1]

    def test_attempts_are_those_that_were_made(self) -> None:
        for alias, attempts in (("default", 1), ("once", 2), ("twice", 3)):
            with self.subTest(alias):
                self.told.clear()
                result = self.run_all(fail.using(backend=alias), "built in")
                started = [one.attempts for signal, one in self.told if signal is signals.task_started]
                self.assertEqual(started, [*range(1, attempts + 1)])
                self.assertEqual((result.status.value, result.attempts), ("FAILED", attempts))

    def test_errors_have_their_class_and_a_whole_traceback(self) -> None:
        for name, (_, _, kind) in ERRORS.items():
            with self.subTest(name):
                (error,) = self.run_all(fail, name).errors
                self.assertIs(error.exception_class, kind)
                told = error.traceback.splitlines(keepends=True)[-1]
                self.assertRegex(told, rf"\A({kind.__name__}|Bury): .*\n\Z")

    def test_an_error_of_which_a_text_is_left_has_a_class_too(self) -> None:
        texts = {"ProcessDied: 9": ProcessDied, "KeyError: 1": KeyError, "print: 1": Exception, "": Exception}
        for text, kind in texts.items():
            with self.subTest(text):
                called = Enqueued("tests.django.contract.fail", ["own"], {}, "1", 0.0, "default", "default")
                app.workers["tasks.default"]().retries_exhausted([Job("1", [called], (0.0,), 0.0, 1, text or None)])
                (error,) = self.told[-1][1].errors
                self.assertIs(error.exception_class, kind)
                self.assertEqual(error.traceback, f"{text}\n")

    def test_a_task_is_told_as_it_was_enqueued(self) -> None:
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        for changes in ({"queue_name": "mail"}, {"backend": "twice"}, {"run_after": later}):
            with self.subTest(changes):
                self.told.clear()
                asked = look.using(**changes)
                self.run_all(asked, 1)
                self.assertEqual([one.task for _, one in self.told], [asked] * 3)
                self.assertEqual(seen.pop(), (asked, (1,)))

    def test_texts_and_numbers_of_libraries_are_what_they_are(self) -> None:
        self.run_all(look, format_html("<b>{}</b>", 1), Whole(17), [mark_safe("x")])
        self.assertEqual(seen.pop()[1], ("<b>1</b>", 17, ["x"]))
        with testing.fake(app), self.assertRaisesMessage(InvalidJob, "key"):
            look.enqueue({1: 2})

    def test_what_is_returned_is_told_as_json_has_it(self) -> None:
        for name, value in {"tuple": [1, [2]], "bytes": "x", "mapping": {"a": [1]}, "text": "<b>"}.items():
            with self.subTest(name):
                self.assertEqual(self.run_all(give, name).return_value, value)

    def test_what_json_cannot_hold_is_a_failure_of_what_is_done_once(self) -> None:
        for name in ("function", "set", "no text", "in a list"):
            with self.subTest(name):
                result = self.run_all(give, name)
                self.assertEqual((result.status.value, result.attempts, ran[name]), ("FAILED", 1, 1))
                self.assertIs(result.errors[0].exception_class, ValueError if name == "no text" else TypeError)
                self.assertIn("Unsupported", result.errors[0].traceback)
