"""The pages are in plain English: sentences of 30 words at most, and none of the words that readers had to decode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

LONGEST = 30
#: What is not to be written → what to write instead.
TERMS = {
    r"(?i)\bat once\b": "immediately, or at the same time",
    r"(?i)\b(?:is|are|was|were|be|been) (?:told|noted|rung|said)\b": "is recorded, is notified, or say who tells whom",
    r"(?i)\bmend(?:s|ed|ing)?\b": "fix",
    r"(?i)\b(?:to|may|can|must) bear\b": "tolerate",
    r"(?i)\bdeeds?\b": "action",
    r"(?i)\bwhoever\b": "name them: the node, the person",
    r"(?i)\bhas (?:it|them|jobs|ids|what) be\b": "say it directly: pushes jobs",
    r"(?i)\b(?:say|says|said) goodbye\b": "deregister",
    r"(?i)\bbe it\b": "whether",
    # The reader must find the noun: which job, which node?
    r"(?:^|[.:;] )(?:What|Those that|One that|That which) (?![^.?!]*\?)": "a noun first: the job that",
    r"(?:^|[.:;] )Of an? [^,.]{3,60}, ": "the usual order of words",
}
#: What was said at its time, and pages that are to be rewritten yet. A new page is not one of them.
NOT_YET = {"changelog.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Code, pictures, and what is folded.
NO_PROSE = r"(?ms)^ *```.*?^ *```|<picture>.*?</picture>|<details>.*?</details>|<!--.*?-->"


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Paragraphs and items of lists, without tables, each with the line where it begins."""
    text = re.sub(NO_PROSE, lambda found: "\n" * found[0].count("\n"), page.read_text("utf-8"))
    at, words = 0, list[str]()
    for number, line in enumerate([*map(str.strip, text.splitlines()), ""], 1):
        begins = re.match(r"(?:[-*>]|\d+\.) ", line)
        if words and (not line or begins or line[0] in "#|"):
            yield at, plain(" ".join(words))
            words = []
        if line and line[0] not in "#|":
            at = at if words else number
            words.append(line[begins.end() :] if begins else line)


def plain(text: str) -> str:
    """As one reads it: code is a word, which may begin a sentence, and of a link there is its text."""
    text = re.sub(r"<[^>]+>", "", re.sub(r"``?[^`]+``?", "Code", text))
    return re.sub(r"\*", "", re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text))


def findings(page: Path) -> Iterator[str]:
    for number, text in prose(page):
        for sentence in re.split(r"(?<=[.!?])[)\"]? +(?=[A-Z\d(\"])|(?<=[:;]) +", text):
            if (length := len(re.findall(r"[\w']+", sentence))) > LONGEST:
                yield f"{page.name}:{number}: {length} words: {sentence[:90]}"
        for term, instead in TERMS.items():
            yield from (f"{page.name}:{number}: {met[0]!r}; better: {instead}" for met in re.finditer(term, text))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in NOT_YET], ids=lambda page: page.name)
def test_the_page_is_in_plain_english(page: Path) -> None:
    assert list(findings(page)) == []


def test_what_is_rewritten_is_on_the_list_no_more() -> None:
    assert {page.name for page in PAGES if page.name in NOT_YET and any(findings(page))} == NOT_YET


def test_what_is_looked_for_is_found(tmp_path: Path) -> None:
    long = " ".join(["word"] * 31)
    text = f"# At once\n\n- It runs\n  at once. What runs ends.\n\n```\nmend\n```\n\n{long}.\n"
    (tmp_path / "page.md").write_text(text)
    assert [line.split(": ")[0] for line in findings(tmp_path / "page.md")] == ["page.md:3", "page.md:3", "page.md:10"]
