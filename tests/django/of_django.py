"""
Runs Django's own tests of tasks, as they are, on LowkiqBackend: in place of Django's two backends there are two of
ours, one of which keeps results, the other runs what is enqueued. Those fail that docs/django.md names, no others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final
from unittest import TestResult, TestSuite

from django.tasks.backends import dummy, immediate
from django.tasks.signals import task_finished
from django.test.runner import DiscoverRunner
from django.test.utils import iter_test_cases  # type: ignore[attr-defined]

from lowkiq import testing
from lowkiq.django import app
from lowkiq.django.tasks import LowkiqBackend
from tests.support import ROOT

#: What stands for "any queue" in those tests, which is refused: the queues that they name.
QUEUES: Final = ("default", "queue-2", "unknown_queue")


class Kept(LowkiqBackend):
    """Keeps the results of `enqueue`."""

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, {**params, "QUEUES": params.get("QUEUES") or QUEUES})
        self.results: list[Any] = []

    def clear(self) -> None:
        self.results.clear()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        with testing.fake(app):
            self.results.append(super().enqueue(task, args, kwargs))
        return deepcopy(self.results[-1])


class Run(Kept):
    """Runs what is enqueued to its end, and gives the result that the signal has told."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        def keep(task_result: Any, **_: Any) -> None:
            self.results.append(task_result)

        task_finished.connect(keep)
        try:
            with testing.fake(app) as jobs, suppress(SystemExit):  # for which a node would end, once it has settled
                LowkiqBackend.enqueue(self, task, args, kwargs)
                jobs.drain("+60d")
        finally:
            task_finished.disconnect(keep)
        return self.results[-1]


dummy.DummyBackend, immediate.ImmediateBackend = Kept, Run  # type: ignore[misc, assignment]


class Runner(DiscoverRunner):
    """Django's, but for which tests should fail."""

    def run_suite(self, suite: TestSuite, **options: Any) -> Any:
        named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/django.md").read_text("utf-8")))
        ids = [test.id() for test in iter_test_cases(suite)]
        self.refused = {id for id in ids if id.rpartition(".")[2] in named}
        return super().run_suite(suite, **options)

    def suite_result(self, suite: TestSuite, result: TestResult, **_: Any) -> int:
        """How many tests have failed and shouldn't, or should and have not."""
        failed = {getattr(test, "test_case", test).id() for test, _ in (*result.failures, *result.errors)}
        wrong = sorted(failed ^ self.refused)
        print(f"{result.testsRun} tests, {len(failed)} refused; of these, or not, unlike docs/django.md:", *wrong)
        return len(wrong) or not self.refused
