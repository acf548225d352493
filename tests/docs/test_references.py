"""References that could go stale are held against the source: log events, variables of the environment, commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from lowkiq.variables import NAMES, PREFIX
from tests.support import ROOT

LEVELS = {"info", "warning", "error", "exception"}
#: Events whose names are put together, or handed on: what the source says, and what the log has.
BY_ANOTHER_NAME = {
    "f'no_{name}_was_ready'": {"no_node_was_ready", "no_redis_was_ready"},
    "f'{name}_failed'": set[str](),  # a hook's own name, which the page tells in words
    "event": {"waiting_for_redis", "redis_trouble", "suspect_is_tried"},
    "state": {"draining", "retiring"},
    "trouble": {"state_directory_taken", "state_directory_lost"},
}
#: Calls of that shape that log nothing: INFO of Redis, what a parser of options says, and the like.
NO_EVENTS = ("server", "memory", "MET_WITHIN")
#: Variables that a supervisor sets for its own processes.
INTERNAL = {"WEB_MADE_TOKEN", "LAST_EXIT", "RESTARTS", "RSS_LIMIT", "SLOT", "SUPERVISOR_PID"}


def logged() -> set[str]:
    """Every event that the source can log."""
    found: set[str] = set()
    for path in [*(ROOT / "lowkiq").rglob("*.py"), *(ROOT / "supervisor").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                found |= events_of(node.func.attr, node.args[0], path)
    return found


def events_of(method: str, first: ast.expr, path: Path) -> set[str]:
    text = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
    if method == "met" and isinstance(first, ast.Constant):
        return {str(text)}
    if method not in LEVELS or text in NO_EVENTS or path.name == "__main__.py":
        return set()
    return BY_ANOTHER_NAME.get(str(text), {str(text)})


def test_the_page_of_log_events_has_all_of_them_and_no_other():
    page = (ROOT / "docs/log_events.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row[1])]
    assert len(told) == len({*told})
    assert logged() - {*told} == {"on_server_init_interrupted"}  # told below the table, with the other hooks
    assert {*told} - logged() == {"log_failed", "scheduler_failed"}  # written without a logger, and by a partial


def test_every_variable_is_told_and_no_other():
    page = (ROOT / "docs/cli.md").read_text("utf-8")
    told = {name.removeprefix(PREFIX) for name in re.findall(r"`((?:LOWKIQ_)?[A-Z_]{4,})`", page)}
    assert told - {"RUNTIME_DIRECTORY", ""} == NAMES - INTERNAL
