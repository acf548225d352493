"""A line of the log hurts nobody, however the application has lines be written."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from lowkiq import log
from tests.support import ROOT

#: What records of the standard library and structlog's renderers know otherwise than as a field of a line.
RESERVED = {
    *vars(logging.makeLogRecord({})), "message", "asctime", "stack", "exception", "level", "timestamp", "event",
    "logger",
} - {"exc_info"}  # fmt: skip


class Odd:
    def __repr__(self) -> str:
        raise SystemExit("no text")


def raising(error: BaseException) -> Callable[..., Any]:
    def processor(*_: object) -> Any:
        raise error

    return processor


CHAINS: dict[str, list[Any]] = {
    "an error": [raising(RuntimeError("the collector is away"))],
    "no Exception": [raising(SystemExit("a hurry"))],
    "Ctrl-C of its own": [raising(KeyboardInterrupt())],
    "no renderer": [structlog.processors.add_log_level],
    "JSON that can't": [structlog.processors.JSONRenderer(default=raising(ValueError("what is that")))],
}


@pytest.fixture(autouse=True)
def own_troubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[log.Troubles]:
    made = log.Troubles()
    monkeypatch.setattr(log, "TROUBLES", made)
    monkeypatch.setattr("signal.getsignal", lambda _: None)  # as in a node, which handles INT itself
    yield made
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_line_that_cannot_be_written_as_the_application_wants_it_is_written_all_the_same(
    chain: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.configure(processors=chain, cache_logger_on_first_use=False)
    logger = log.get_logger().bind(queue="q")
    with structlog.contextvars.bound_contextvars(shard=3):
        logger.warning("lease_lost", ids={"a"}, odd=Odd())
    told, line = lines(capsys)
    assert (told["event"], told["advice"]) == ("log_failed", log.ADVICE)
    assert (line["event"], line["level"], line["queue"], line["shard"]) == ("lease_lost", "warning", "q", 3)


def test_what_is_wrong_with_it_is_told_once_and_the_error_that_was_to_be_logged_with_its_traceback(
    capsys: pytest.CaptureFixture[str], own_troubles: log.Troubles
) -> None:
    structlog.configure(processors=[raising(RuntimeError("away"))])
    logger = log.get_logger()
    for _ in range(3):
        try:
            int("x")
        except ValueError:
            logger.exception("hook_failed")
    told, *rest = lines(capsys)
    assert told["error"] == "RuntimeError: away"
    assert [(line["event"], "invalid literal" in line["exception"]) for line in rest] == [("hook_failed", True)] * 3
    assert own_troubles.take() == ["RuntimeError: away"]
    logger.info("again")
    assert own_troubles.take() == []


def test_an_error_whose_class_has_no_name_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    class Nameless(type):
        def __getattribute__(cls, name: str) -> Any:
            raise RuntimeError(f"no {name}")

    odd = Nameless("Odd", (Exception,), {})("no text")
    structlog.configure(processors=[raising(odd)])
    try:
        raise odd  # noqa: TRY301 (it is to be handled here)
    except Exception:  # noqa: BLE001 (it has no name)
        log.get_logger().exception("hook_failed")
    told, line = lines(capsys)
    assert told["error"] == "Odd: no text"
    assert (line["event"], "Odd" in line["exception"]) == ("hook_failed", True)


def test_a_traceback_does_nothing_to_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    log.configure()
    odd = "\x1b]0;pwned\x07\x1b[31m\u202e\x9b\r"
    try:
        int(f"größe {odd}")
    except ValueError as error:
        error.add_note(odd)
        log.get_logger().exception("hook_failed")
    shown = capsys.readouterr().err.partition("Traceback")[2]
    assert "größe" in shown and r"\x1b]0;pwned\x07" in shown
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []


def test_python_s_own_interrupt_still_ends_what_it_is_pressed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    monkeypatch.setattr("signal.getsignal", lambda _: signal.default_int_handler)
    structlog.configure(processors=[raising(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        log.get_logger().info("x")


def test_no_field_of_a_line_has_a_name_that_a_log_of_others_takes_for_its_own() -> None:
    found = [
        f"{path}:{call.lineno} {keyword.arg}"
        for directory in ("lowkiq", "supervisor/lowkiq_supervisor")
        for path in Path(ROOT, directory).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in {"debug", "info", "warning", "error", "exception", "bind", "critical"}
        if "log" in ast.unparse(call.func.value)
        for keyword in call.keywords
        if keyword.arg in RESERVED
    ]
    assert found == []


def test_all_lines_of_lowkiq_s_own_go_that_way() -> None:
    texts = {
        path: path.read_text("utf-8") for top in ("lowkiq", "supervisor") for path in Path(ROOT, top).rglob("*.py")
    }
    assert [path.name for path, text in texts.items() if "structlog.get_logger(" in text] == ["log.py"]
