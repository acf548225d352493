"""Every block of Python on the pages runs, and every command names what exists; what can't run is listed, and why."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import typer.main

from lowkiq import Lowkiq
from lowkiq.cli.commands import whole
from lowkiq_supervisor.cli import cli as supervisor_command
from tests import warm
from tests.support import ROOT, SOURCES, RedisServer
from tests.typing.examples import ALONE, PROJECT, granted, write_project

#: Pages whose blocks make up a whole, each with the test that runs it. A guide that needs more than a Redis goes here.
RUN_AS_A_WHOLE: Final = {
    **dict.fromkeys(PROJECT, "tests/types/test_examples.py"),
    "docs/tutorial.md": "tests/docs/test_sessions.py",
    "docs/django.md": "tests/django/test_guide.py",
    **{f"docs/{page}.md": "tests/docs/test_outbox_and_fastapi.py" for page in ("fastapi", "outbox")},
    "docs/testing.md": "tests/testing/test_plugin.py",
    **{f"docs/{page}.md": f"tests/docs/test_{page}.py" for page in ("cookbook", "idempotent")},
    **{f"docs/from_{system}.md": "tests/examples/test_from_pages.py" for system in ("celery", "rq", "ruby", "sidekiq")},
}
#: Blocks that can't run here, by a line of theirs, and why.
CANNOT_RUN: Final = {
    'with app.events("OrderSync", kinds=["failed", "buried"]) as events:': "listens for ever",
}
#: What blocks need of their surroundings, by the name that they use.
SURROUNDINGS: Final = {"get_asgi_application": "from django.conf import settings\nsettings.configure()\n"}


class Block(NamedTuple):
    """A fenced block: its page, its number there, its language and its text."""

    page: str
    number: int
    language: str
    text: str


def blocks(*languages: str) -> list[Any]:
    """Blocks of all pages in these languages, as parameters of a test."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "helm/lowkiq/README.md"]:
        page = str(path.relative_to(ROOT))
        fences = re.findall(r"^ *```(\w+)\n(.*?)^ *```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        found += [Block(page, number, *fence) for number, fence in enumerate(fences)]
    return [pytest.param(block, id=f"{block.page}-{block.number}") for block in found if block.language in languages]


PYTHON = [param for param in blocks("python", "py") if param.values[0].page not in RUN_AS_A_WHOLE]


def cannot_run(block: Block) -> str | None:
    """The reason why it can't, if it can't."""
    return next((why for line, why in CANNOT_RUN.items() if line in block.text.splitlines()), None)


@pytest.mark.parametrize("block", [param for param in PYTHON if cannot_run(param.values[0]) is None])
def test_a_block_of_python_runs(block: Block, tmp_path: Path, app: Lowkiq, redis_server: RedisServer) -> None:
    environment = os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace,
        "PYTHONPATH": os.pathsep.join([SOURCES, str(tmp_path)]),
    }  # fmt: skip
    write_project(tmp_path)
    needs = [source for name, source in SURROUNDINGS.items() if name in block.text]
    (tmp_path / "block.py").write_text("\n".join([*needs, granted(block.text) if block.page in ALONE else block.text]))
    done = warm.run([sys.executable, "block.py"], cwd=tmp_path, env=environment, capture_output=True)
    advice = (
        f"{block.page}: mend it, or name in RUN_AS_A_WHOLE the test that runs the page, or in CANNOT_RUN why it can't"
    )
    assert done.returncode == 0, f"{advice}\n{done.stdout}{done.stderr}"


def test_what_cannot_run_is_on_a_page() -> None:
    texts = [param.values[0].text.splitlines() for param in PYTHON]
    assert all(any(line in text for text in texts) for line in CANNOT_RUN)


@pytest.mark.parametrize(("page", "test"), RUN_AS_A_WHOLE.items())
def test_what_runs_as_a_whole_has_its_test(page: str, test: str) -> None:
    assert (ROOT / page).exists()
    texts = (ROOT / test).read_text("utf-8") + (ROOT / "tests/typing/examples.py").read_text("utf-8")
    assert page in texts


COMMANDS: Final[dict[str, Any]] = {
    "lowkiq": whole(),
    "lowkiq-supervisor": typer.main.get_command(supervisor_command),
}


def commands(text: str) -> list[list[str]]:
    """The words of each of our commands in a console block, whatever a shell does with what comes before and after."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if prompted := re.match(r" *[$#] (.*)", line):
            words = shlex.shlex(prompted[1], posix=True, punctuation_chars=True)
            words.wordchars += "@:%+{}…"
            for _, command in itertools.groupby(words, lambda word: word in {"&&", "||", ";", "|", ">", "&", "(", ")"}):
                found.append([*command])
    return [words for words in found if words[0].rpartition("/")[2] in {*COMMANDS, "make"}]


def misfits(command: Any, words: list[str]) -> list[str]:
    """Options and subcommands among the words that the command doesn't know."""
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help", "-h"}
    wrong = []
    for number, word in enumerate(words):
        name = word.partition("=")[0]
        if word.startswith("-") and len(word) > 1 and not word[1:].isdigit():
            wrong += [] if name in known else [word]
        elif word in (subcommands := getattr(command, "commands", {})):
            return wrong + misfits(subcommands[word], words[number + 1 :])
    return wrong


@pytest.mark.parametrize("block", blocks("console", "bash", "sh", "shell"))
def test_commands_name_what_exists(block: Block) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in commands(block.text):
        name = words[0].rpartition("/")[2]
        if name == "make":
            assert {word for word in words[1:] if "=" not in word} <= {*targets}, words
        else:
            assert misfits(COMMANDS[name], words[1:]) == [], words
